"""Ranks whose times are made up: a curve of seconds over learners, noise, and a clock; and the loop that tunes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibow.tune import Counts, Decision, History, Meter, Tuner, Window, decide, enough

Curve = Callable[[int], float]  # learners -> seconds
Noise = Callable[[np.random.Generator], float]  # a factor of every iteration
Load = Callable[[float], float]  # seconds since the start -> a factor


def peak(at: int, seconds: float = 0.01) -> Curve:
    """As many learners as `at` cost nothing, more are worse than one after the other."""
    return lambda k: seconds * max(1.0, (k / at) ** 1.3)


def plateau(at: int, seconds: float = 0.01) -> Curve:
    """A device that is full with `at` learners: more are as fast as one after the other."""
    return lambda k: seconds * max(1.0, k / at)


def usual(generator: np.random.Generator) -> float:
    return max(1.0 + 0.03 * generator.standard_normal(), 0.1)


def exact(_: np.random.Generator) -> float:
    return 1.0


def gaussian(sigma: float) -> Noise:
    return lambda generator: max(1.0 + sigma * generator.standard_normal(), 0.1)


def heavy(sigma: float) -> Noise:
    return lambda generator: float(np.exp(sigma * generator.standard_normal()))


def spikes(share: float, size: float = 10.0) -> Noise:
    return lambda generator: usual(generator) * (size if generator.random() < share else 1.0)


def steady(_: float) -> float:
    return 1.0


@dataclass
class Rank:
    """`crash`: with so many learners its memory is not enough, which nobody knows before."""

    curve: Curve
    noise: Noise = usual
    load: Load = steady
    crash: int | None = None


@dataclass
class Simulation:
    """The coordinator's loop on made-up ranks: announces, waits for `prefetch` iterations, measures, decides."""

    ranks: Sequence[Rank]
    seed: int = 0
    tuner: Tuner = field(default_factory=Tuner)
    room: Sequence[int | None] | None = None
    rest: float = 0.0002  # seconds of every iteration that hide behind nothing
    prefetch: int = 4
    cores: int | None = None  # that all ranks share; None: each has enough of its own
    now: float = 0.0
    iterations: int = 0
    crashes: int = 0
    decisions: list[Decision] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # of the decisions

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)
        self.history = History.begin(len(self.ranks), 4, self.room)
        self._decide()

    @property
    def counts(self) -> Counts:
        return self.decisions[-1].counts

    def _decide(self) -> None:
        self.decisions.append(decide(self.history, self.tuner))
        self.times.append(self.now)

    def iterate(self, counts: Counts) -> tuple[list[float], float]:
        own = [
            rank.curve(k) * rank.noise(self.generator) * rank.load(self.now)
            for rank, k in zip(self.ranks, counts, strict=True)
        ]
        if self.cores is not None:
            own = [time * max(1.0, sum(counts) / self.cores) for time in own]
        whole = max(own) + self.rest
        self.now += whole
        self.iterations += 1
        return own, whole

    def window(self) -> None:
        """One window and the decision that follows it; or what is decided where the memory is not enough."""
        decision = self.decisions[-1]
        before = self.decisions[-2].counts if len(self.decisions) > 1 else decision.counts
        for i, rank in enumerate(self.ranks):
            if rank.crash is not None and decision.counts[i] >= rank.crash:
                self.crashes += 1
                self.history = self.history.out_of_memory(i, decision.counts[i])
                self._decide()
                return
        if before != decision.counts:
            for _ in range(self.prefetch):
                self.iterate(before)
        meters = [Meter(decision.span) for _ in self.ranks]
        while True:
            own, whole = self.iterate(decision.counts)
            asked = [meter.add(seconds, whole) for meter, seconds in zip(meters, own, strict=True)]
            if any(asked) and enough([meter.reading() for meter in meters], decision.span):
                break
        readings = [reading for meter in meters if (reading := meter.reading()) is not None]
        self.history = self.history.add(Window.of(decision, readings), self.tuner)
        self._decide()

    def settle(self, windows: int = 200) -> Counts:
        """Runs until it settles; how soon is the test's to say."""
        for _ in range(windows):
            if self.decisions[-1].settled:
                break
            self.window()
        assert self.decisions[-1].settled, [d.reason for d in self.decisions[-20:]]
        return self.counts

    def run(self, seconds: float) -> Counts:
        end = self.now + seconds
        while self.now < end:
            self.window()
        return self.counts

    def changes(self) -> int:
        return sum(a.counts != b.counts for a, b in zip(self.decisions, self.decisions[1:], strict=False))

    def rate(self, counts: Counts) -> float:
        """Learners' batches a second that the curves give at this moment, without noise."""
        slowest = max(rank.curve(k) * rank.load(self.now) for rank, k in zip(self.ranks, counts, strict=True))
        return sum(counts) / (slowest + self.rest)

    def best(self, most: int = 24) -> float:
        """The best rate of all counts: for every time that a rank may take, what each gets done in it."""
        ks = range(1, most + 1)
        times = [[rank.curve(k) * rank.load(self.now) for k in ks] for rank in self.ranks]
        found = 0.0
        for limit in {time for curve in times for time in curve}:
            counts = tuple(max((k for k, t in zip(ks, curve, strict=True) if t <= limit), default=0) for curve in times)
            if min(counts) >= 1:
                found = max(found, self.rate(counts))
        return found
