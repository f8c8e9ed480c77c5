"""Callbacks: functions of a program that receive the events of its run, and may end it.

A callback is called with an event, between two iterations. It returns None, STOP to end the run on all ranks, or
numbers by name, which go to metrics.jsonl. Rank 0 calls it, or every rank if its attribute `every_rank` is true. An
exception in it ends the run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType

from mpibow.config import build
from mpibow.config.course import Stop, Watched
from mpibow.errors import CallbackError, MpibowError
from mpibow.job.job import Callback
from mpibow.metrics.metric import OWN
from mpibow.system import JsonObject

from .loggers import ENTRIES
from .results import measures

RENAMED = {"position": "samples", "elapsed": "seconds"}


class _Stop:
    """A callback returns mpibow.STOP to end the run, on all ranks after the same iteration."""

    def __repr__(self) -> str:
        return "mpibow.STOP"


STOP = _Stop()


@dataclass(frozen=True)
class _Moment:
    iteration: int
    samples: int
    epoch: float


@dataclass(frozen=True)
class Iteration(_Moment):
    """Every `log.every` iterations: `loss` and `accuracy` of training are means since the last event.

    They lag by an iteration, as losses travel with the next exchange: None where none has come yet.

    `samples` is their number so far, in `seconds` of training; `learners` has one number per rank.
    """

    learners: tuple[int, ...]
    loss: float | None
    accuracy: float | None
    rate: float
    gain: float
    seconds: float
    images_per_second: float


@dataclass(frozen=True)
class Evaluated(_Moment):
    """The centre was evaluated on `data`, validation or test; without classes there is no accuracy.

    `metrics` maps the names of the run's metrics to values, None for one that is not finite. `rises` maps all names
    that may decide on stopping to True if a higher value is better.
    """

    data: str
    loss: float
    accuracy: float | None
    top_k_accuracy: float | None = None
    metrics: JsonObject = field(default_factory=lambda: MappingProxyType({}))
    rises: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType(OWN))


@dataclass(frozen=True)
class Saved(_Moment):
    """A checkpoint was written to `path`."""

    path: str


@dataclass(frozen=True)
class Ended(_Moment):
    """The run has ended, by the limit or signal `stopped`."""

    stopped: str


Event = Iteration | Evaluated | Saved | Ended
EVENTS: Mapping[str, type[Event]] = {  # by the event of metrics.jsonl
    "train": Iteration,
    "evaluate": Evaluated,
    "checkpoint": Saved,
    "end": Ended,
}


@dataclass
class EarlyStopping:
    """Ends the run after `patience` evaluations without an improvement of `metric`.

    The evaluations are on validation data, or without these on test data; without both `fit` raises ConfigError.
    metric: accuracy, loss, or one of the run's metrics by name. min_delta: the smallest change that counts. The
    settings stop.metric, stop.patience and stop.min_delta do the same, and also continue their count when a run is
    resumed; this starts again with each run.
    """

    metric: str = "loss"
    patience: int = 3
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        settings = {"metric": self.metric, "patience": self.patience, "min_delta": self.min_delta}
        self._stop = build(Stop, settings, path="EarlyStopping")
        self._begin()

    def _begin(self) -> None:
        """A run begins, whose values have no best yet."""
        self._watched = Watched()
        self._data = ""

    def __call__(self, event: Event) -> _Stop | None:
        if not isinstance(event, Evaluated) or event.data != (self._data or event.data):
            return None
        self._data = event.data  # the first that is evaluated are those that choose
        values = measures(event.metrics, event.loss, event.accuracy)
        value = values[self.metric]
        rises = event.rises[self.metric]
        self._watched = self._stop.follow(self._watched, math.nan if value is None else value, rises=rises)
        return STOP if self._watched.bad >= self.patience else None


class Callbacks:
    """A run's callbacks, whose numbers go to `write`; `stop` names the one that returned STOP, '' before."""

    def __init__(self, callbacks: Sequence[Callback], write: Callable[..., None], rises: Mapping[str, bool]):
        self._callbacks = tuple(callbacks)
        self._write = write
        self._rises = MappingProxyType(dict(rises))
        self.stop = ""
        for each in callbacks:
            if isinstance(each, EarlyStopping):  # of a run before, perhaps
                each._begin()

    def hear(self, event: str, entries: JsonObject) -> None:
        kind = EVENTS.get(event)
        if kind is None or not self._callbacks:
            return
        values: JsonObject = {RENAMED.get(key, key): read_only(value) for key, value in entries.items()} | {
            "rises": self._rises
        }
        heard = kind(**{each.name: values[each.name] for each in fields(kind) if each.name in values})
        for callback in self._callbacks:
            self._call(callback, heard, {key: entries[key] for key in ("iteration", "position", "epoch")})

    def _call(self, callback: Callback, event: Event, where: JsonObject) -> None:
        name = getattr(callback, "__name__", type(callback).__name__)
        try:
            found = callback(event)
        except MpibowError:
            raise
        except Exception as error:
            raise CallbackError(f"callback {name}: {type(error).__name__}: {error}") from error
        if found is STOP:
            self.stop = self.stop or f"callback {name}"
        elif isinstance(found, Mapping):
            self._write("callback", **where, name=name, **_numbers(name, found))
        elif found is not None:
            raise CallbackError(
                f"callback {name}: must return None, mpibow.STOP or numbers by name, got {type(found).__name__}"
            )


def read_only(value: object) -> object:
    """Lists as tuples, mappings that can't be changed."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: read_only(each) for key, each in value.items()})
    return tuple(map(read_only, value)) if isinstance(value, list | tuple) else value


def _numbers(name: str, found: JsonObject) -> dict[str, float | None]:
    """The numbers as JSON has them: null for one that is not finite."""
    numbers = {}
    for key, value in found.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise CallbackError(f"callback {name}: {key}: must be a number, got {type(value).__name__}") from None
        if key in ENTRIES:
            raise CallbackError(f"callback {name}: {key}: is an entry of every event; give it another name")
        numbers[str(key)] = number if math.isfinite(number) else None
    return numbers
