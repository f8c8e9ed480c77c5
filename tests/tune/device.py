"""Ranks whose times are made up: a curve of seconds over learners, noise, and a clock; and the loop that tunes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TypeVar

import numpy as np

from mpibow.data import fixed
from mpibow.run.coordinator import Coordinator
from mpibow.run.tuning import Tuning
from mpibow.tune import Counts, Decision, History, Tuner

T = TypeVar("T")
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


def spikes(share: float) -> Noise:
    return lambda generator: usual(generator) * (10.0 if generator.random() < share else 1.0)


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
    """A session's loop with its own `Tuning` on every rank and its own `Coordinator`, on made-up times."""

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
        begun = History(tuple(self.room), 4) if self.room else History.begin(len(self.ranks), 4)
        self.tunings = [Tuning(self.tuner, begun) for _ in self.ranks]
        self.coordinator = Coordinator(fixed(4, self.tunings[0].decision.counts), self.prefetch)
        self.attention = False  # that the all-reduce of this iteration carries
        self._enter(self.tunings[0].decision)

    @property
    def counts(self) -> Counts:
        """The learners that were decided on last; they come `prefetch` iterations later."""
        return self.decisions[-1].counts

    @property
    def history(self) -> History:
        history = self.tunings[0].history
        return history

    def _enter(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self.times.append(self.now)

    def iterate(self) -> None:
        """An iteration of the learners that were announced for it; at its end ranks talk if one wanted to before it."""
        counts = self.coordinator.timeline().counts(self.iterations)
        own = [
            rank.curve(k) * rank.noise(self.generator) * rank.load(self.now)
            for rank, k in zip(self.ranks, counts, strict=True)
        ]
        if self.cores is not None:
            own = [time * max(1.0, sum(counts) / self.cores) for time in own]
        whole = max(own) + self.rest
        self.now += whole
        for tuning, seconds in zip(self.tunings, own, strict=True):
            tuning.measured(seconds, whole, counts)
        self.iterations += 1
        if self.attention:
            self._talk()
        self.attention = any(tuning.asks for tuning in self.tunings)

    def _talk(self) -> None:
        readings = [tuning.reading() for tuning in self.tunings]
        decision = alike([tuning.conclude(readings) for tuning in self.tunings])
        if decision is None:
            return
        self._enter(decision)
        while short := [i for i, rank in enumerate(self.ranks) if rank.crash and decision.counts[i] >= rank.crash]:
            self.crashes += 1
            decision = alike([tuning.without(short[0], decision.counts[short[0]]) for tuning in self.tunings])
            self._enter(decision)
        if decision.counts != self.coordinator.announced:
            self.coordinator.announce(self.iterations, decision.counts)

    def settle(self, decisions: int = 200) -> Counts:
        """Runs until it settles; how soon is the test's to say."""
        while not self.decisions[-1].settled and len(self.decisions) <= decisions:
            self.iterate()
        assert self.decisions[-1].settled, [d.reason for d in self.decisions[-20:]]
        return self.counts

    def run(self, seconds: float) -> Counts:
        end = self.now + seconds
        while self.now < end:
            self.iterate()
        return self.counts

    @property
    def kept(self) -> list[Counts]:
        """What it has settled on, one after the other."""
        return [counts for counts, _ in groupby(d.counts for d in self.decisions if d.settled)]

    @property
    def looks(self) -> list[tuple[int, float]]:
        """Of every look but the first the windows that it took, and the seconds."""
        begun = [i for i, (a, b) in enumerate(pairwise(self.decisions), 1) if a.settled and not b.settled]
        ended = [i for i, (a, b) in enumerate(pairwise(self.decisions), 1) if b.settled and not a.settled][1:]
        return [(end - at, self.times[end] - self.times[at]) for at, end in zip(begun, ended, strict=False)]

    def changes(self) -> int:
        return sum(a.counts != b.counts for a, b in pairwise(self.decisions))

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


def alike(decisions: Sequence[T]) -> T:
    """What all ranks have decided, which must be the same."""
    assert all(decision == decisions[0] for decision in decisions), decisions
    return decisions[0]
