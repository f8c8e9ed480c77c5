"""mpibow: deep networks trained with small batches, several learners on every device, kept together by averaging."""

from mpibow.errors import MpibowError
from mpibow.fit import Fitted, fit
from mpibow.ops import (
    Constant,
    He,
    TruncatedNormal,
    Uniform,
    Xavier,
    avg_pool2d,
    conv2d,
    dense,
    dropout,
    flatten,
    max_pool2d,
    relu,
    sigmoid,
    tanh,
)

__all__ = [
    "Constant",
    "Fitted",
    "He",
    "MpibowError",
    "TruncatedNormal",
    "Uniform",
    "Xavier",
    "avg_pool2d",
    "conv2d",
    "dense",
    "dropout",
    "fit",
    "flatten",
    "max_pool2d",
    "relu",
    "sigmoid",
    "tanh",
]
