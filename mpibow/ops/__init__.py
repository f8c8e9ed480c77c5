"""Operators: frozen records of tensor functions, and the functions that add them to a graph."""

from mpibow.ops.activation import Relu, Sigmoid, Tanh, relu, sigmoid, tanh
from mpibow.ops.batch_norm import BatchNorm, batch_norm
from mpibow.ops.conv import Conv2d, conv2d
from mpibow.ops.dense import Dense, dense
from mpibow.ops.dropout import COUNTER, Dropout, dropout
from mpibow.ops.initialisers import Constant, He, TruncatedNormal, Uniform, Xavier
from mpibow.ops.loss import Accuracy, SoftmaxCrossEntropy, accuracy, softmax_cross_entropy
from mpibow.ops.normalise import Normalise, normalise
from mpibow.ops.pool import AvgPool2d, MaxPool2d, avg_pool2d, max_pool2d
from mpibow.ops.shape import Flatten, flatten

__all__ = [
    "COUNTER",
    "Accuracy",
    "AvgPool2d",
    "BatchNorm",
    "Constant",
    "Conv2d",
    "Dense",
    "Dropout",
    "Flatten",
    "He",
    "MaxPool2d",
    "Normalise",
    "Relu",
    "Sigmoid",
    "SoftmaxCrossEntropy",
    "Tanh",
    "TruncatedNormal",
    "Uniform",
    "Xavier",
    "accuracy",
    "avg_pool2d",
    "batch_norm",
    "conv2d",
    "dense",
    "dropout",
    "flatten",
    "max_pool2d",
    "normalise",
    "relu",
    "sigmoid",
    "softmax_cross_entropy",
    "tanh",
]
