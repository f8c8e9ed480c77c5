"""mpibow: deep networks trained with small batches, several learners on every device, kept together by averaging."""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import Interrupted as Interrupted, MpibowError as MpibowError
    from .fitted import Fitted as Fitted, load as load
    from .fitting import fit as fit
    from .job.predictor import Prediction as Prediction
    from .metrics.metric import Metric as Metric
    from .onnx.reader import from_onnx as from_onnx
    from .ops import *
    from .probing import check as check, find_lr as find_lr
    from .pytorch import from_torch as from_torch
    from .run.callbacks import (
        STOP as STOP,
        EarlyStopping as EarlyStopping,
        Ended as Ended,
        Evaluated as Evaluated,
        Iteration as Iteration,
        Saved as Saved,
    )
    from .sync.rule import Rule as Rule

__version__ = "0.1.0"

_ELSEWHERE = {
    **dict.fromkeys(("Interrupted", "MpibowError"), "mpibow.errors"),
    "Fitted": "mpibow.fitted",
    "load": "mpibow.fitted",
    "fit": "mpibow.fitting",
    "Prediction": "mpibow.job.predictor",
    "check": "mpibow.probing",
    "find_lr": "mpibow.probing",
    "from_onnx": "mpibow.onnx.reader",
    "from_torch": "mpibow.pytorch",
    "Metric": "mpibow.metrics.metric",
    "Rule": "mpibow.sync.rule",
    **dict.fromkeys(("EarlyStopping", "Ended", "Evaluated", "Iteration", "STOP", "Saved"), "mpibow.run.callbacks"),
}


class _Package(ModuleType):
    """A module whose docstring lists all operators. The docstring is made when help(mpibow) reads it."""

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return str(import_module("mpibow.reference").package())


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Imports a name at its first use: `python -m mpibow.doctor` must run where a package is missing."""
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    if name == "__all__":
        return sorted({*_ELSEWHERE, *import_module("mpibow.ops").NAMES})
    a_module = name.startswith("_") or find_spec(f"{__name__}.{name}") is not None  # one not imported yet
    if a_module or name not in import_module("mpibow.ops").NAMES:
        raise AttributeError(f"module 'mpibow' has no attribute '{name}'")
    return getattr(import_module("mpibow.ops"), name)


def __dir__() -> list[str]:
    """Includes names that are not imported yet, so that an editor or a prompt offers them."""
    return sorted({*globals(), *__getattr__("__all__")})
