"""mpibow: deep networks trained with small batches, several learners on every device, kept together by averaging."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpibow.errors import MpibowError
    from mpibow.fitting import Fitted, fit
    from mpibow.ops import (
        Constant,
        He,
        TruncatedNormal,
        Uniform,
        Xavier,
        adaptive_avg_pool2d,
        add,
        avg_pool2d,
        batch_norm,
        clipped_relu,
        concat,
        conv2d,
        dense,
        dropout,
        flatten,
        gelu,
        global_avg_pool2d,
        layer_norm,
        leaky_relu,
        local_response_norm,
        matrix_factorisation,
        max_pool2d,
        maximum,
        multiply,
        pad_channels,
        relu,
        sigmoid,
        soft_cross_entropy,
        softmax,
        softmax_cross_entropy,
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
    "adaptive_avg_pool2d",
    "add",
    "avg_pool2d",
    "batch_norm",
    "clipped_relu",
    "concat",
    "conv2d",
    "dense",
    "dropout",
    "fit",
    "flatten",
    "gelu",
    "global_avg_pool2d",
    "layer_norm",
    "leaky_relu",
    "local_response_norm",
    "matrix_factorisation",
    "max_pool2d",
    "maximum",
    "multiply",
    "pad_channels",
    "relu",
    "sigmoid",
    "soft_cross_entropy",
    "softmax",
    "softmax_cross_entropy",
    "tanh",
]
_ELSEWHERE = {"MpibowError": "mpibow.errors", "Fitted": "mpibow.fitting", "fit": "mpibow.fitting"}


def __getattr__(name: str) -> Any:
    """What is used is imported when it is: `python -m mpibow.doctor` must run where a package is missing."""
    if name not in __all__:
        raise AttributeError(f"module 'mpibow' has no attribute '{name}'")
    return getattr(import_module(_ELSEWHERE.get(name, "mpibow.ops")), name)


def __dir__() -> list[str]:
    """Also what is not imported yet, so that an editor or a prompt offers it."""
    return sorted({*globals(), *__all__})
