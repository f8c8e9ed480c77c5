"""Operators: frozen records of tensor functions, and the functions that add them to a graph."""

from mpibow.graph.graph import Add, Multiply
from mpibow.ops.activation import (
    ClippedRelu,
    Gelu,
    LeakyRelu,
    Relu,
    Sigmoid,
    Tanh,
    clipped_relu,
    gelu,
    leaky_relu,
    relu,
    sigmoid,
    tanh,
)
from mpibow.ops.augment import Augment, CentreCrop, Cutout, augment, centre_crop, cutout
from mpibow.ops.batch_norm import BatchNorm, batch_norm
from mpibow.ops.colour import Jitter, jitter
from mpibow.ops.combine import Concat, Maximum, add, concat, maximum, multiply
from mpibow.ops.conv import Conv2d, conv2d
from mpibow.ops.dense import Dense, dense
from mpibow.ops.dropout import COUNTER, Dropout, dropout
from mpibow.ops.factorise import MatrixFactorisation, matrix_factorisation
from mpibow.ops.initialisers import Constant, He, TruncatedNormal, Uniform, Xavier
from mpibow.ops.layer_norm import LayerNorm, layer_norm
from mpibow.ops.local_response import LocalResponseNorm, local_response_norm
from mpibow.ops.loss import (
    Accuracy,
    SoftCrossEntropy,
    Softmax,
    SoftmaxCrossEntropy,
    accuracy,
    soft_cross_entropy,
    softmax,
    softmax_cross_entropy,
)
from mpibow.ops.mixup import Mix, MixShares, OneHot, mix, mix_shares, one_hot
from mpibow.ops.normalise import Normalise, normalise
from mpibow.ops.pool import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    GlobalAvgPool2d,
    MaxPool2d,
    adaptive_avg_pool2d,
    avg_pool2d,
    global_avg_pool2d,
    max_pool2d,
)
from mpibow.ops.shape import Flatten, PadChannels, flatten, pad_channels

__all__ = [
    "COUNTER",
    "Accuracy",
    "AdaptiveAvgPool2d",
    "Add",
    "Augment",
    "AvgPool2d",
    "BatchNorm",
    "CentreCrop",
    "ClippedRelu",
    "Concat",
    "Constant",
    "Conv2d",
    "Cutout",
    "Dense",
    "Dropout",
    "Flatten",
    "Gelu",
    "GlobalAvgPool2d",
    "He",
    "Jitter",
    "LayerNorm",
    "LeakyRelu",
    "LocalResponseNorm",
    "MatrixFactorisation",
    "MaxPool2d",
    "Maximum",
    "Mix",
    "MixShares",
    "Multiply",
    "Normalise",
    "OneHot",
    "PadChannels",
    "Relu",
    "Sigmoid",
    "SoftCrossEntropy",
    "Softmax",
    "SoftmaxCrossEntropy",
    "Tanh",
    "TruncatedNormal",
    "Uniform",
    "Xavier",
    "accuracy",
    "adaptive_avg_pool2d",
    "add",
    "augment",
    "avg_pool2d",
    "batch_norm",
    "centre_crop",
    "clipped_relu",
    "concat",
    "conv2d",
    "cutout",
    "dense",
    "dropout",
    "flatten",
    "gelu",
    "global_avg_pool2d",
    "jitter",
    "layer_norm",
    "leaky_relu",
    "local_response_norm",
    "matrix_factorisation",
    "max_pool2d",
    "maximum",
    "mix",
    "mix_shares",
    "multiply",
    "normalise",
    "one_hot",
    "pad_channels",
    "relu",
    "sigmoid",
    "soft_cross_entropy",
    "softmax",
    "softmax_cross_entropy",
    "tanh",
]
