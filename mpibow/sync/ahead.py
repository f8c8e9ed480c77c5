"""An exchange in buckets: sent while the backward pass goes on, and while the next forward pass does.

What a backward pass has ended is updated and sent at once (the buckets of DDP, arXiv:2006.15704; S-Caffe's aggregation
in stages); what is left is sent in the order in which the next forward pass needs it, which waits for each bucket
where it first reads its weights (S-Caffe's propagation). Sums over ranks do not depend on how the array is cut, nor
local steps and rules on the order of elements: the bits are those of one exchange.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from statistics import median
from typing import Any, NamedTuple, Protocol

import numpy as np

from mpibow.comm.communicator import POLL, Communicator
from mpibow.kernels.passes import Local
from mpibow.trace import Trace

from .engine import Engine, OnChunks

LONGEST = 1e-3  # seconds between looks at the learners' progress
BLOCK, ROUNDS = 5, 3  # iterations in a row, the first not timed, and how often each way is tried


class Stages(Protocol):
    """The stages of the learners' passes: chunks of the flat array, in the order in which backward passes end them."""

    @property
    def chunks(self) -> Sequence[Sequence[range]]: ...

    @property
    def needed(self) -> Sequence[int]:
        """For each stage the number of the first step that reads its weights."""
        ...

    def begin(self) -> None:
        """The learners are about to begin."""

    def reached(self, b: int) -> bool:
        """Whether no learner reads the weights of stage b, or writes their gradients, any more in this iteration."""
        ...

    def finite(self, b: int) -> bool:
        """Whether losses and stage b's gradients are finite, once it is reached."""
        ...

    def shut(self, turn: int) -> None:
        """The learners' next passes wait for each stage until it is opened for this turn, or a later one."""

    def open(self, b: int, turn: int) -> None: ...
    def stalled(self) -> float:
        """Seconds that they waited, about, since it was asked last."""
        ...


class Way(NamedTuple):
    """The number of an exchange's buckets, and how many of them are sent in the backward pass's order."""

    buckets: int
    ahead: int


ONE = Way(1, 0)


def ways(most: int) -> list[Way]:
    """The ways that are tried with up to so many buckets."""
    counts = sorted({min(count, most) for count in (4, 16)} - {1})
    return [ONE, *(Way(n, ahead) for n in counts for ahead in sorted({n - 1, n // 2, n // 4}, reverse=True))]


class Buckets:
    """The buckets of exchanges by `way`: neighbouring stages are one bucket where there are fewer of these."""

    def __init__(self, comm: Communicator, engine: Engine, stages: Stages, chunk: int, trace: Trace, way: Way) -> None:
        self.comm, self.engine, self.stages, self.trace, self._chunk = comm, engine, stages, trace, chunk
        chunks, needed = stages.chunks, stages.needed
        count = min(way.buckets, len(chunks))
        self.way = Way(count, min(way.ahead, count - 1))
        ends = [(b + 1) * len(chunks) // count for b in range(count)]
        self.of_stages = [range(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        self.chunks = [[part for i in own for part in chunks[i]] for own in self.of_stages]
        late = sorted(range(self.way.ahead, count), key=lambda b: min(needed[i] for i in self.of_stages[b]))
        self.order = [*range(self.way.ahead), *late]  # in which they are sent

    def spans(self, b: int, numbers: int) -> list[slice]:
        """Bucket b's elements; the last one sent has the `numbers` at the array's end too."""
        size, spans = self.engine.size, list[slice]()
        ends = [(part.start * self._chunk, min(part.stop * self._chunk, size)) for part in self.chunks[b]]
        for start, stop in [*ends, *([(size, size + numbers)] if b == self.order[-1] else [])]:
            begin = spans.pop().start if spans and spans[-1].stop == start else start
            spans.append(slice(begin, stop))
        return spans


class Staged:
    """One exchange: `run` beside the learners, `stop` when they have ended, `send` once the rest is updated, `finish`.

    Three threads take part, each with work of one kind: `run` watches the learners and updates, as long as all is
    finite; the communication thread sends; `applies` makes the rule's passes, bucket by bucket. Behind `shut` the
    learners' next passes may begin. `turn` grows.
    """

    def __init__(self, buckets: Buckets, local: Local, turn: int, sends: Executor, applies: Executor) -> None:
        self._buckets, self._local, self._turn, self._sends, self._applies = buckets, local, turn, sends, applies
        self._claim, self._over, self._claimed = threading.Lock(), threading.Event(), 0
        self._passes: Sequence[OnChunks] = ()
        self._whole = np.zeros(0)
        self._written, self._applied = list[float](), list[Future[None]]()  # when each bucket was; each one's passes
        self._sent: Future[None] | None = None
        self._last = self.seconds = 0.0  # when the last bucket was summed; the time that sums took

    def run(self, before: Future[Any] | None) -> None:
        """Updates the buckets ahead, each once it is done, until `stop`; after the exchange `before` this one."""
        buckets, engine, stages = self._buckets, self._buckets.engine, self._buckets.stages
        if before is not None:
            before.result()
        self._whole = engine.sending
        self._passes = engine.passes(self._local, self._whole.reshape(1, -1))
        for b in range(buckets.way.ahead):
            begin = time.perf_counter()
            while not stages.reached(buckets.of_stages[b][-1]):
                if self._over.wait(min(max(POLL, (time.perf_counter() - begin) / 16), LONGEST)):
                    return
            if not all(map(stages.finite, buckets.of_stages[b])):
                return
            with self._claim:
                if self._over.is_set():
                    return
                self._claimed = b + 1
            with buckets.trace.span("communication", "update"):
                for part in buckets.chunks[b]:
                    engine.update(self._local, part)
            self.send(b + 1)

    def stop(self) -> list[range]:
        """The learners have ended: the chunks that are still to be updated."""
        with self._claim:
            self._over.set()
        return [part for own in self._buckets.chunks[self._claimed :] for part in own]

    def shut(self) -> None:
        """The next passes wait for what `finish` brings."""
        self._buckets.stages.shut(self._turn)

    def open(self) -> None:
        """They do not wait any more."""
        for i in range(len(self._buckets.stages.chunks)):
            self._buckets.stages.open(i, self._turn)

    def send(self, count: int | None = None) -> None:
        """The first `count` buckets to be sent are updated, or all, and then the numbers beside the sums are entered."""
        buckets = self._buckets
        now, order = time.perf_counter(), buckets.order
        self._written += [now] * ((count or len(order)) - len(self._written))
        if self._sent is None:
            parts = [buckets.spans(b, self._whole.size - buckets.engine.size) for b in order]
            written, sends = self._written.__len__, buckets.comm.allreduce_in_parts
            self._sent = self._sends.submit(sends, self._whole, parts, written, self._summed)

    def finish(self) -> None:
        """Returns when all is sent and applied."""
        assert self._sent is not None
        self._sent.result()
        for each in self._applied:
            each.result()

    def _summed(self, i: int) -> None:
        begin, self._last = max(self._written[i], self._last), time.perf_counter()
        self.seconds += self._last - begin
        b, trace = self._buckets.order[i], self._buckets.trace
        if trace.on:
            trace.add("communication", f"all-reduce of bucket {b + 1}", round(1e9 * begin), round(1e9 * self._last))
        self._applied.append(self._applies.submit(self._apply, b))

    def _apply(self, b: int) -> None:
        buckets = self._buckets
        with np.errstate(over="ignore", invalid="ignore"), buckets.trace.span("averaging", f"bucket {b + 1}"):
            for each in self._passes:
                for part in buckets.chunks[b]:
                    each(part)
        for i in buckets.of_stages[b]:
            buckets.stages.open(i, self._turn)


class WayTrial:
    """Ways take turns, some iterations each, and the one with the shortest median is the best.

    Rank 0's times count, which have the others' lateness in them.
    """

    def __init__(self, most: int) -> None:
        self._turn, self._last = 0, 0.0
        self._times: dict[Way, list[float]] = {way: [] for way in ways(most)}

    def next(self) -> Way | None:
        """The way of the iteration that begins; None once all have been tried."""
        now, tried, before = time.perf_counter(), [*self._times], self._turn - 1
        if self._turn and before % BLOCK:  # the first one of a block has begun beside another way's exchange
            self._times[tried[before // BLOCK % len(tried)]].append(now - self._last)
        self._last, self._turn = now, self._turn + 1
        done = before + 1 == BLOCK * ROUNDS * len(tried)
        return None if done else tried[(before + 1) // BLOCK % len(tried)]

    @property
    def medians(self) -> dict[Way, float]:
        """Seconds of an iteration, by the way."""
        return {way: median(times) for way, times in self._times.items()}


def chosen(medians: Mapping[Way, float]) -> tuple[Way, str]:
    """The best way, and a line about it."""
    best = min(medians, key=lambda way: medians[way])
    said = "as a whole" if best == ONE else f"in {best.buckets} buckets, {best.ahead} ahead of the backward pass's end"
    return best, f"exchange {said}: {1e3 * medians[best]:.1f} ms an iteration; as a whole {1e3 * medians[ONE]:.1f} ms"
