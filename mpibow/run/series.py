"""Curves of a run, finished or under way, as pure functions of its metrics.jsonl."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpibow.errors import ConfigError, RecordError
from mpibow.system import JsonObject, read_file
from mpibow.tune.words import LISTED, in_ranks

Event = JsonObject
# Entries that are numbers or null; `position` and `epoch` are never null, `learners` is a list of numbers.
NUMBERS = ("elapsed", "accuracy", "top_k_accuracy", "loss", "data_wait", "sync_wait", "sync_hidden")
Points = list[tuple[float, float]]  # x, y


@dataclass(frozen=True)
class RunLog:
    """A run's events in order; `known` are its (samples, seconds of training) pairs, rising in both."""

    label: str
    events: tuple[Event, ...]
    known: tuple[tuple[float, float], ...]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]


@dataclass(frozen=True)
class Curve:
    """`y` over `x`; `raw` is y before smoothing, None without."""

    name: str
    x: list[float]
    y: list[float]
    raw: list[float] | None = None


def read_run(path: Path, label: str | None = None) -> RunLog:
    """The run in directory `path`. Raises ConfigError where there is none, RecordError where a line is no event."""
    file = path / "metrics.jsonl"
    if not path.is_dir():
        raise ConfigError(f"{path}: there is no such run directory; give one of those in `out`, as runs/NAME")
    if not file.is_file():
        raise ConfigError(f"{path}: is not a run directory: it has no metrics.jsonl")
    events = tuple(kept(parse(read_file(file), file)))
    return RunLog(label or path.resolve().name, events, tuple(clock(events)))


def parse(content: bytes, name: Path) -> list[Event]:
    """The events of a metrics.jsonl; a last line without its end is still being written."""
    *lines, _ = content.split(b"\n")
    events = []
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
            event["event"]
            numbers = [event["position"], event["epoch"], *event.get("learners", [])]
            numbers += [value for key in NUMBERS if (value := event.get(key)) is not None]
            if not all(isinstance(value, int | float) for value in numbers):
                raise TypeError("text where a number is drawn")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(
                f"{name}: line {number} is not an event of a run; remove it to draw the others"
            ) from error
        events.append(event)
    return events


def kept(events: Iterable[Event]) -> list[Event]:
    """The events without those that a resumed run repeated: a start at a position removes all behind it."""
    found = list[Event]()
    for event in events:
        if event["event"] == "start":
            found = [earlier for earlier in found if earlier["position"] <= event["position"]]
        found.append(event)
    return found


def clock(events: Iterable[Event]) -> list[tuple[float, float]]:
    """(samples, seconds of training) wherever they are known, from (0, 0) on; [] where they never are."""
    known = [(event["position"], event["elapsed"]) for event in events if event.get("elapsed") is not None]
    rising = [(0.0, 0.0)]
    for point in known:
        if point[0] > rising[-1][0] and point[1] >= rising[-1][1]:
            rising.append(point)
    return rising if len(rising) > 1 else []


def seconds_at(known: Sequence[tuple[float, float]], position: float) -> float | None:
    """Seconds of training when `position` samples were consumed, interpolated linearly between known times."""
    if not known or position > known[-1][0]:
        return None
    samples, seconds = zip(*known, strict=True)
    return float(np.interp(position, samples, seconds))


@dataclass(frozen=True)
class View:
    """A run over an axis: samples, epochs or seconds of training. `smooth` entries of training are averaged; None is a
    fiftieth of all."""

    run: RunLog
    axis: str
    smooth: int | None = None

    def x(self, event: Event) -> float | None:
        """The event's place on the axis; None where that is not known."""
        if self.axis == "seconds":
            return self.seconds(event)
        return float(event["position" if self.axis == "samples" else "epoch"])

    def seconds(self, event: Event) -> float | None:
        """Seconds of training at the event."""
        return event["elapsed"] if "elapsed" in event else seconds_at(self.run.known, event["position"])

    def evaluated(self, key: str, more: str = "") -> list[Curve]:
        """The centre's evaluations by data set."""
        events = [event for event in self.run.of("evaluate") if "checkpoint" not in event]
        return [
            _curve(name + more, self._points((each for each in events if each.get("data") == name), key), 1)
            for name in ("validation", "test")
        ]

    def trained(self, name: str, key: str) -> list[Curve]:
        """The entries of training."""
        return [_curve(name, self._points(self.run.of("train"), key), self.smooth)]

    def speed(self) -> list[Curve]:
        """Images/s from entry to entry, evaluations left out."""
        points: Points = []
        before = (0.0, 0.0)
        for event in self.run.of("train"):
            samples = float(event["position"])
            seconds = self.seconds(event)
            x = self.x(event)
            if seconds is None or x is None:
                continue
            if samples > before[0] and seconds > before[1]:
                points.append((x, (samples - before[0]) / (seconds - before[1])))
            before = samples, seconds
        return [_curve("images/s", points, self.smooth)]

    def waits(self) -> list[Curve]:
        """The fractions of the training from entry to entry that rank 0's learners waited for data, and for averaging.

        Entries have them since the process started, which is where the last `start` was.
        """
        return [self._waited("data", "data_wait"), self._waited("averaging", "sync_wait")]

    def _waited(self, name: str, key: str) -> Curve:
        points: Points = []
        began, before = 0.0, (0.0, 0.0)  # seconds of the process's training, seconds waited
        for event in self.run.events:
            if event["event"] == "start":
                began = self.seconds(event) or 0.0
                before = (0.0, 0.0)
            share = event.get(key)
            x = self.x(event)
            seconds = self.seconds(event)
            if event["event"] != "train" or share is None or x is None or seconds is None:
                continue
            now = seconds - began, share * (seconds - began)
            if now[0] > before[0]:
                points.append((x, min(max((now[1] - before[1]) / (now[0] - before[0]), 0.0), 1.0)))
                before = now
        return _curve(name, points, self.smooth)

    def learners(self, *, together: bool = False) -> list[Curve]:
        """Learners by rank, to be drawn as steps; ranks that always had as many as each other are one curve, and so are
        all of them `together`, or where there would be more than LISTED curves."""
        counted = [
            (x, event["learners"])
            for event in self.run.events
            if "learners" in event and (x := self.x(event)) is not None
        ]
        if len(counted) < 2:  # one does not say for how long
            return []
        times = [x for x, _ in counted]
        ranks = max(len(counts) for _, counts in counted)
        alike = dict[tuple[float, ...], list[int]]()
        for rank in range(ranks):
            history = tuple(float(counts[rank]) if rank < len(counts) else 0.0 for _, counts in counted)
            alike.setdefault(history, []).append(rank)
        if together or len(alike) > LISTED:
            return [Curve("all ranks", times, [float(sum(counts)) for _, counts in counted])]
        every = "the rank" if ranks == 1 else f"each of {ranks} ranks"
        return [
            Curve(every if len(members) == ranks else in_ranks(members), times, list(history))
            for history, members in alike.items()
        ]

    def _points(self, events: Iterable[Event], key: str) -> Points:
        """The finite points: a training loss is null before the first all-reduce."""
        found = [(self.x(event), event.get(key)) for event in events]
        return [(x, y) for x, y in found if x is not None and y is not None and math.isfinite(y)]


# The panels, in the order in which they are drawn. `hidden` is the fraction of the all-reduces that rank 0's learners
# did not stand still for; runs of one rank have none.
PANELS: Mapping[str, Callable[[View], list[Curve]]] = {
    "accuracy": lambda view: [
        *view.evaluated("accuracy"),
        *view.evaluated("top_k_accuracy", ", top k"),
        *view.trained("training", "accuracy"),
    ],
    "loss": lambda view: [*view.evaluated("loss"), *view.trained("training", "loss")],
    "speed": View.speed,
    "learners": View.learners,
    "waits": View.waits,
    "hidden": lambda view: view.trained("hidden", "sync_hidden"),
}


def curves(run: RunLog, panel: str, axis: str, smooth: int | None = None, *, aside: bool = False) -> list[Curve]:
    """The curves of a panel that have any points; `aside`: there are other runs in it."""
    view = View(run, axis, smooth)
    if panel == "learners" and aside:
        return view.learners(together=True)
    return [curve for curve in PANELS[panel](view) if curve.x]


def smoothed(values: Sequence[float], n: int) -> list[float]:
    """The mean of each value and the n - 1 before it, as far as there are."""
    return [math.fsum(part) / len(part) for i in range(len(values)) if (part := values[max(i + 1 - n, 0) : i + 1])]


def _curve(name: str, points: Points, smooth: int | None) -> Curve:
    x = [point[0] for point in points]
    y = [point[1] for point in points]
    n = max(len(y) // 50, 1) if smooth is None else smooth
    return Curve(name, x, smoothed(y, n), y) if n > 1 else Curve(name, x, y)
