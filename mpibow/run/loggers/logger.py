"""Loggers, and the numbers of a run's events that they receive."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

TRAINING = ("loss", "accuracy", "rate", "gain", "distance", "images_per_second", "data_wait", "sync_wait")
ENTRIES = {"event", "time", "name", "iteration", "position", "epoch"}  # of every event of a callback


class Logger(Protocol):
    """`add` gets numbers by name, and how many samples the run had consumed."""

    def add(self, numbers: Mapping[str, float], samples: int) -> None: ...
    def close(self) -> None: ...


def numbers_of(event: str, entries: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an event of metrics.jsonl by names such as training/loss, validation/accuracy; {} for others."""
    if event == "train":
        learners = {"learners": sum(entries["learners"])} if "learners" in entries else {}
        return _finite("training", {key: entries.get(key) for key in TRAINING} | learners)
    if event == "callback":
        return _finite(str(entries["name"]), {key: entries[key] for key in entries if key not in ENTRIES})
    if event not in ("evaluate", "average"):
        return {}
    data = entries.get("data", "test")
    place = f"average/{data}" if event == "average" else f"best/{data}" if "checkpoint" in entries else data
    named = {key: entries.get(key) for key in ("loss", "accuracy", "top_k_accuracy")} | dict(entries.get("metrics", {}))
    return _finite(place, named)


class Loggers:
    """Loggers of a run. One that fails is left out from there on, with a note, and the run goes on."""

    def __init__(self, loggers: Mapping[str, Logger], note: Callable[[str], None]) -> None:
        self._loggers, self._note = dict(loggers), note

    def add(self, event: str, **entries: Any) -> None:
        if self._loggers and (numbers := numbers_of(event, entries)):
            self._each(lambda logger: logger.add(numbers, int(entries["position"])))

    def close(self) -> None:
        self._each(lambda logger: logger.close())

    def _each(self, function: Callable[[Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            try:
                function(logger)
            except Exception as error:
                del self._loggers[name]
                text = f"{type(error).__name__}: {error}"
                self._note(f"warning: log.to: {name} failed and gets nothing more, metrics.jsonl has all: {text}")


def _finite(place: str, named: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"{place}/{name}": float(value)
        for name, value in named.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
