"""The buckets of exchanges: stages of the learners' passes, the ways to cut and order them, and a trial of these."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import starmap
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from mpibow.comm import Communicator
from mpibow.comm.communicator import SumInParts
from mpibow.graph import Array
from mpibow.graph.stages import Stages
from mpibow.kernels import FlatKernels, Local
from mpibow.system.process import address
from mpibow.trace import Trace

from .engine import Engine

WARM_UP = 10  # iterations before the first one that counts
BLOCK, ROUNDS = 5, 3  # iterations in a row, the first not timed, and how often each way is tried
TIE = 0.97  # a way in buckets must take less than so many times as long as one exchange
NEAR = 1.1  # the slowest way that is tried again takes so many times as long as the best


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

    def __init__(self, comm: Communicator, engine: Engine, stages: Stages, flat: FlatKernels, trace: Trace, way: Way):
        """`flat` has a Recorder."""
        self._comm = comm
        self.engine = engine
        self.stages = stages
        self.trace = trace
        self._chunk = flat.chunk
        chunks = stages.chunks
        needed = stages.needed
        stages_ = len(chunks)
        n = min(way.buckets, len(chunks))
        self.way = Way(n, min(way.ahead, n - 1))
        ends = sorted({round(stages_ * (1 - (1 - (b + 1) / n) ** (2 if n < stages_ else 1))) for b in range(n)} - {0})
        count = len(ends)
        buckets = list(starmap(range, zip([0, *ends[:-1]], ends, strict=True)))
        ahead = min(self.way.ahead, count - 1)
        late = sorted(range(ahead, count), key=lambda b: min(needed[i] for i in buckets[b]))
        self.order = [*range(ahead), *late]  # in which they are sent
        self._stages = [buckets[b] for b in self.order]
        self.chunks = [[part for i in own for part in chunks[i]] for own in self._stages]
        self._goals = np.array([own[-1] + 1 for own in self._stages[:ahead]], np.int64)
        self._spans = _rows([(part.start, part.stop) for part in own] for own in self.chunks)
        self._opens = _rows([(i,) for i in own] for own in self._stages)
        self._extents = _rows([each for i in own for each in stages.extents[i]] for own in self._stages[:ahead])
        assert flat.Recorder is not None
        self._recorders = flat.Recorder(), flat.Recorder()
        self._sums = cache(self._summing)  # by the address of the array that is sent

    def exchange(self, local: Local, words: Array, times: Array) -> None:
        """One exchange of the engine's, whose words and times are as in mpibow.kernels.compiled.buckets; all numbers of
        its steps are found before its word HOLD is FREE."""
        from mpibow.kernels.compiled import buckets
        from mpibow.kernels.compiled.recorder import command

        engine = self.engine
        stages = self.stages
        clock = address("clock_gettime")
        whole = engine.sending
        own = local.times(1.0)  # whose scalars are of now; after a reset they are others
        passes = engine.passes(local, whole.reshape(1, -1))

        def every(chunks: range, do: Callable[..., None]) -> None:
            for each in passes:
                each(chunks, do=do)

        updates, applies = self._recorders
        reached, losses = stages.learners()
        ready = command(
            buckets.update, stages.gradients, words, self._goals, reached, self._spans,
            updates.record(engine.update(own), range(1)).table, losses, self._extents, times, clock,
        )  # fmt: skip
        done = command(
            buckets.apply, words, self._spans, applies.record(every, range(1)).table, self._opens, stages.opened, times,
            clock,
        )  # fmt: skip
        sums = self._sums(whole.ctypes.data)
        words[buckets.HOLD] = buckets.FREE
        sums(ready, done, words)

    def _summing(self, place: int) -> SumInParts:
        """The elements of each bucket, as they are sent; the last one has the numbers at the array's end too."""
        size = self.engine.size
        whole = self.engine.sending
        parts = []
        for i, own in enumerate(self.chunks):
            ends = [(part.start * self._chunk, min(part.stop * self._chunk, size)) for part in own]
            if i == len(self.order) - 1:
                ends.append((size, whole.size))
            spans = list[slice]()
            for start, stop in ends:
                begin = spans.pop().start if spans and spans[-1].stop == start else start
                spans.append(slice(begin, stop))
            parts.append(spans)
        return self._comm.in_parts(whole, parts)


def rest(parts: Sequence[range], passes: Any) -> Any:
    """The command of recorded passes on these chunks."""
    from mpibow.kernels.compiled import buckets
    from mpibow.kernels.compiled.recorder import command

    return command(buckets.on_chunks, _rows([[(part.start, part.stop) for part in parts]]), 0, passes.table)


def _rows(of: Iterable[Sequence[Sequence[int]]]) -> Array:
    """int64: a row for each of these, behind the number of its bucket."""
    rows = [(i, *row) for i, own in enumerate(of) for row in own]
    return np.array(rows, np.int64).reshape(-1, len(rows[0]) if rows else 1)


class WayTrial:
    """Ways take turns, some iterations each, and the one with the shortest median is the best.

    Those that are far behind have one turn alone. Rank 0's times count, which have the others' lateness in them.
    """

    def __init__(self, ways: Sequence[Way]):
        self._times: dict[Way, list[float]] = {way: [] for way in ways}
        self.medians: Mapping[Way, float] = {}  # seconds of an iteration, by the way
        self._turns = self._plan()

    def next(self, share: Share) -> Way | None:
        """The way of the iteration that begins; None once all have been tried. `share` gives every rank's medians."""
        self._share = share
        return next(self._turns, None)

    def _plan(self) -> Iterator[Way]:
        ways = [*self._times]
        last = 0.0
        for _ in range(WARM_UP):
            yield ways[-1]  # what it needs is compiled
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
