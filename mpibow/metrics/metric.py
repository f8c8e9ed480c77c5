"""The definition of a metric: a pure function to sums that add up, and one from their total to the reported number."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mpibow.errors import CallbackError, MpibowError
from mpibow.system import nulled

Array = npt.NDArray[Any]
Sums = Mapping[str, Array]
OWN = {"loss": False, "training_loss": False, "accuracy": True}  # metrics of every run: whether higher is better


def ratio(part: Array, whole: Array) -> float:
    """part / whole; NaN where the whole is 0."""
    return float(part) / float(whole) if whole else np.nan


@dataclass(frozen=True)
class Metric:
    """A metric of a program's own: fit(metrics=[mb.Metric("bias", sums, close, higher_is_better=False)]).

    `sums(output, target)` gets arrays (n, ...) of a batch, floats in float64, and returns a number, an array, or
    several by name: they are added up over all batches and ranks. `close(sums)` makes a number of the total. With
    several outputs or targets `sums` gets mappings, unless given for one output. Samples left out are not in them.
    """

    name: str
    sums: Callable[..., object]
    close: Callable[..., object]
    higher_is_better: bool = True


@dataclass(frozen=True)
class Measure:
    """A metric under its name in reports, of outputs and inputs of the graph that evaluates.

    `output` and `target` are names of these, or mappings from the metric's own names.
    """

    name: str
    metric: Any
    output: str | Mapping[str, str]
    target: str | Mapping[str, str]

    @property
    def rises(self) -> bool | None:
        return getattr(self.metric, "higher_is_better", True)

    def sums(self, outputs: Mapping[str, Array], slot: Mapping[str, Array], rows: Array) -> object:
        """The sums of the batch's samples `rows` (n,), from copies, as the next batch overwrites the arrays."""
        given = _of(outputs, self.output, rows), _of(slot, self.target, rows)
        return self._called(lambda: _arrays(self.metric.sums(*given)))

    def value(self, total: object) -> object:
        """The reported value of the total, as JSON has it: null where it is not finite, or no sample counted."""
        if total is None:
            return None
        return nulled(np.asarray(self._called(lambda: self.metric.close(total)), np.float64).tolist())

    def _called(self, function: Callable[[], object]) -> object:
        try:
            return function()
        except MpibowError as error:
            raise type(error)(f"metrics: {self.name}: {error}") from None
        except Exception as error:
            raise CallbackError(f"metric {self.name}: {type(error).__name__}: {error}") from error


def total(parts: Iterable[Any]) -> Any:
    """The sum over batches or ranks, in their order; None where none of them has sums."""
    found: Any = None
    for part in parts:
        if found is None:
            found = part
        elif isinstance(part, Mapping):
            found = {key: found[key] + value for key, value in part.items()}
        elif part is not None:
            found = found + part
    return found


def _of(arrays: Mapping[str, Array], names: str | Mapping[str, str], rows: Array) -> object:
    if isinstance(names, Mapping):
        return {key: _of(arrays, name, rows) for key, name in names.items()}
    found = arrays[names][rows]
    return found.astype(np.float64) if found.dtype.kind == "f" else found


def _arrays(sums: object) -> object:
    """The sums in their dtype for adding up: integers and wide floats as they are, narrow ones as float64."""
    if isinstance(sums, Mapping):
        return {key: _arrays(value) for key, value in sums.items()}
    found = np.asarray(sums)
    return found if found.dtype.itemsize >= 8 and found.dtype.kind in "iuf" else found.astype(np.float64)
