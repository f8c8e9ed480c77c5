"""The buckets of exchanges: stages of the learners' passes, the ways to cut and order them, and a trial of these."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import NamedTuple, Protocol

from mpibow.comm import Communicator
from mpibow.graph import Array
from mpibow.trace import Trace

from .engine import Engine

WARM_UP = 10  # iterations before the first one that counts
BLOCK, ROUNDS = 5, 3  # iterations in a row, the first not timed, and how often each way is tried
TIE = 0.97  # a way in buckets must take less than so many times as long as one exchange
NEAR = 1.1  # the slowest way that is tried again takes so many times as long as the best


class Stages(Protocol):
    """The stages of the learners' passes: chunks of the flat array, in the order in which backward passes end them."""

    @property
    def chunks(self) -> Sequence[Sequence[range]]: ...

    @property
    def needed(self) -> Sequence[int]:
        """For each stage the number of the first step that reads its weights."""

    @property
    def words(self) -> Array:
        """(k, n): of each row the first word is the number of stages that a learner has reached."""

    def begin(self) -> None:
        """The learners are about to begin."""

    def reached(self, b: int) -> bool:
        """Whether no learner reads the weights of stage b, or writes their gradients, any more in this iteration."""

    def finite(self, b: int) -> bool:
        """Whether losses and stage b's gradients are finite, once it is reached."""

    def shut(self, turn: int) -> None:
        """The learners' next passes wait for each stage until it is opened for this turn, or a later one."""

    def open(self, b: int, turn: int) -> None: ...
    def stalled(self) -> float:
        """Seconds that they waited, about, since it was asked last."""


class Way(NamedTuple):
    """The number of an exchange's buckets, and how many of them are sent in the backward pass's order."""

    buckets: int
    ahead: int


ONE = Way(1, 0)
Share = Callable[[Mapping[Way, float]], Sequence[Mapping[Way, float]]]


def candidates(most: int, late: bool = False) -> list[Way]:
    """The ways that are tried with up to so many buckets; `late`: no update is made before the gradient is whole."""
    counts = sorted({min(count, most) for count in (4, 16)} - {1})
    return [ONE, *(Way(n, a) for n in counts for a in ([0] if late else {n - 1, n // 2, n // 4}))]


class Buckets:
    """The buckets of exchanges by `way`: neighbouring stages are one bucket where there are fewer of these."""

    def __init__(self, comm: Communicator, engine: Engine, stages: Stages, chunk: int, trace: Trace, way: Way) -> None:
        self.comm, self.engine, self.stages, self.trace, self._chunk = comm, engine, stages, trace, chunk
        chunks, needed = stages.chunks, stages.needed
        stages_, n = len(chunks), min(way.buckets, len(chunks))
        self.way = Way(n, min(way.ahead, n - 1))
        ends = sorted({round(stages_ * (1 - (1 - (b + 1) / n) ** (2 if n < stages_ else 1))) for b in range(n)} - {0})
        count = len(ends)
        self.of_stages = [range(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        self.chunks = [[part for i in own for part in chunks[i]] for own in self.of_stages]
        self.ahead = min(self.way.ahead, count - 1)
        late = sorted(range(self.ahead, count), key=lambda b: min(needed[i] for i in self.of_stages[b]))
        self.order = [*range(self.ahead), *late]  # in which they are sent

    @cached_property
    def parts(self) -> list[list[slice]]:
        """The elements of each bucket, as they are sent; the last one has the numbers at the array's end too."""
        size, parts = self.engine.size, list[list[slice]]()
        for b in self.order:
            ends = [(part.start * self._chunk, min(part.stop * self._chunk, size)) for part in self.chunks[b]]
            if b == self.order[-1]:
                ends.append((size, self.engine.sending.size))
            spans = list[slice]()
            for start, stop in ends:
                begin = spans.pop().start if spans and spans[-1].stop == start else start
                spans.append(slice(begin, stop))
            parts.append(spans)
        return parts


class WayTrial:
    """Ways take turns, some iterations each, and the one with the shortest median is the best.

    Those that are far behind have one turn alone. Rank 0's times count, which have the others' lateness in them.
    """

    def __init__(self, ways: Sequence[Way]) -> None:
        self._times: dict[Way, list[float]] = {way: [] for way in ways}
        self.medians: Mapping[Way, float] = {}  # seconds of an iteration, by the way
        self._turns = self._plan()

    def next(self, share: Share) -> Way | None:
        """The way of the iteration that begins; None once all have been tried. `share` gives every rank's medians."""
        self._share = share
        return next(self._turns, None)

    def _plan(self) -> Iterator[Way]:
        ways, last = [*self._times], 0.0
        for _ in range(WARM_UP):
            yield ways[0]
        for _ in range(ROUNDS):
            for way in ways:
                for i in range(BLOCK + 1):
                    begin = time.perf_counter()
                    if i > 1:  # the first one of a block has begun beside another way's exchange
                        self._times[way].append(begin - last)
                    last = begin
                    if i < BLOCK:
                        yield way
            self.medians = self._share({way: median(times) for way, times in self._times.items()})[0]
            ways = [way for way in ways if self.medians[way] < NEAR * min(self.medians.values())]
            if len(ways) == 1:
                return


def chosen(medians: Mapping[Way, float]) -> tuple[Way, str]:
    """The best way, and a line about it. One exchange wins what is as good as a tie: it takes least of the cores."""
    best = min(medians, key=lambda way: medians[way] * (TIE if way == ONE else 1))
    said = "as a whole" if best == ONE else f"in {best.buckets} buckets, {best.ahead} ahead of the backward pass's end"
    return best, f"exchange {said}: {1e3 * medians[best]:.1f} ms an iteration; as a whole {1e3 * medians[ONE]:.1f} ms"
