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
        avg_pool2d,
        batch_norm,
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
    "batch_norm",
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
_ELSEWHERE = {"MpibowError": "mpibow.errors", "Fitted": "mpibow.fitting", "fit": "mpibow.fitting"}


def __getattr__(name: str) -> Any:
    """What is used is imported when it is: `python -m mpibow.doctor` must run where a package is missing."""
    if name not in __all__:
        raise AttributeError(f"module 'mpibow' has no attribute '{name}'")
    return getattr(import_module(_ELSEWHERE.get(name, "mpibow.ops")), name)
