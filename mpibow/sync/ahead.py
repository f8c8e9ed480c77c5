"""An exchange in buckets: sent while the backward pass goes on, and while the next forward pass does.

What a backward pass has ended is updated and sent at once (the buckets of DDP, arXiv:2006.15704; S-Caffe's aggregation
in stages); what is left is sent in the order in which the next forward pass needs it, which waits for each bucket
where it first reads its weights (S-Caffe's propagation). Sums over ranks do not depend on how the array is cut, nor
local steps and rules on the order of elements: the bits are those of one exchange.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import cache, partial
from typing import Any

import numpy as np

from mpibow.comm import Communicator
from mpibow.comm.communicator import NEVER
from mpibow.kernels import Local
from mpibow.trace import Trace

from .buckets import Buckets, Share, Stages, Way, WayTrial, chosen
from .engine import Engine
from .outbox import Book, Message, Tally

QUIET = np.errstate(over="ignore", invalid="ignore")  # the learners' next losses show an overflow


class Staged:
    """One exchange. `run` is all of it, on the communication thread: it also updates the buckets that the learners have
    ended, as long as all is finite. The main thread calls `stop` when they have ended their pass, updates the rest, and
    calls `send`. `turn` grows.
    """

    def __init__(self, buckets: Buckets, local: Local, turn: int) -> None:
        self._buckets, self._local, self._turn = buckets, local, turn
        self._updates, self._over = threading.Lock(), False
        self._written = list[float]()  # when each bucket was
        self._last = self.seconds = 0.0  # when the last bucket was applied; the time that sums took
        self.message: Message | None = None
        self._call = np.array([NEVER, 0])  # what `_ready` is asked for: stages reached, and a bell

    @QUIET
    def run(self, before: Future[Any] | None, close: Callable[[Message | None], Tally | None]) -> Tally | None:
        """After the exchange `before` this one, whose error it raises."""
        buckets = self._buckets
        engine = buckets.engine
        try:
            if before is not None:
                before.result()
            whole = engine.sending
            self._passes = engine.passes(self._local, whole.reshape(1, -1))
            watched = buckets.stages.words, self._call
            buckets.comm.allreduce_in_parts(whole, buckets.parts, self._ready, self._summed, watched)
            engine.advance()
            return close(self.message)
        finally:
            for i in range(len(buckets.stages.chunks)):  # also where it has failed
                buckets.stages.open(i, self._turn)

    def stop(self) -> list[range]:
        """The learners have ended: the chunks that are still to be updated."""
        self._over = True
        with self._updates:  # it has an update to end at most
            return [part for own in self._buckets.chunks[len(self._written) :] for part in own]

    def send(self) -> None:
        """All buckets are updated; with the last one the numbers beside the sums are entered."""
        rest = len(self._buckets.order) - len(self._written)
        self._written += [time.perf_counter()] * rest
        self._call[1] = 1

    def _ready(self) -> int:
        """The number of buckets that are updated, once one more is if it can be."""
        buckets, b = self._buckets, len(self._written)
        stages = buckets.stages
        self._call[:] = NEVER, 0
        if b < buckets.ahead and not self._over and stages.reached(buckets.of_stages[b][-1]):
            with self._updates, buckets.trace.span("communication", "update"):
                if self._over or not all(map(stages.finite, buckets.of_stages[b])):
                    self._over = True
                    return b
                step = buckets.engine.update(self._local)
                for part in buckets.chunks[b]:
                    step(part)
                self._written.append(time.perf_counter())
        b = len(self._written)
        if b < buckets.ahead and not self._over:
            self._call[0] = buckets.of_stages[b][-1] + 1
        return b

    def _summed(self, i: int) -> None:
        buckets, b = self._buckets, self._buckets.order[i]
        begin, end = max(self._written[i], self._last), time.perf_counter()
        self.seconds += end - begin
        if buckets.trace.on:
            what = f"all-reduce of bucket {b + 1}"
            buckets.trace.add("communication", what, round(1e9 * begin), round(1e9 * end))
        with buckets.trace.span("averaging", f"bucket {b + 1}"):
            for each in self._passes:
                for part in buckets.chunks[b]:
                    each(part)
        for stage in buckets.of_stages[b]:
            buckets.stages.open(stage, self._turn)
        self._last = time.perf_counter()


class Ahead:
    """Exchanges in buckets of a run: by `way`, or by the one that a trial finds to be the best."""

    def __init__(
        self, comm: Communicator, engine: Engine, stages: Stages, chunk: int, trace: Trace, way: Way | WayTrial
    ) -> None:
        self._cut = cache(partial(Buckets, comm, engine, stages, chunk, trace))  # by the way
        self._engine, self.stages = engine, stages
        self._buckets = self._cut(way) if isinstance(way, Way) else None
        self._trial = way if isinstance(way, WayTrial) else None
        self._staged: Staged | None = None  # of this iteration
        self._ended = Future[Tally | None]()
        self._turns = 0  # exchanges in buckets so far
        self._next = 0  # the engine's turn behind the one under way
        self.under_way: Staged | None = None  # the exchange that the next passes wait for, bucket by bucket
        self._news = ""

    @property
    def way(self) -> Way | None:
        """The way of exchanges; None while several are tried."""
        return None if self._buckets is None or self._trial is not None else self._buckets.way

    def news(self) -> str:
        """A line about the way that was chosen; once."""
        news, self._news = self._news, ""
        return news

    def begin(self, local: Local, before: Future[Any] | None, sends: Executor, book: Book, share: Share) -> None:
        """The learners begin: what is done of their gradients is updated and sent meanwhile, after the exchange
        `before`. `share` gives every rank's measurements."""
        advances = before is not None and self.under_way is not None  # only when that has ended
        if not self._engine.in_parts(local, self._next if advances else self._engine.turn):
            return
        if self._trial is not None:
            way = self._trial.next(share)
            if way is None:
                way, self._news = chosen(self._trial.medians)
                self._trial = None
            self._buckets = self._cut(way)
        if self._buckets is not None and self._buckets.way.buckets > 1:
            self._turns += 1
            self.stages.begin()
            self._staged = Staged(self._buckets, local, self._turns)
            self._ended = sends.submit(self._staged.run, before, book.close)

    def stop(self) -> list[range] | None:
        """The learners have ended: the chunks that are still to be updated; None if these are all."""
        return None if self._staged is None else self._staged.stop()

    def end(self, tally: Tally, book: Book) -> Future[Tally | None] | None:
        """All is updated: the rest is sent. Returns the exchange under way; None if nothing of it is."""
        staged = self.under_way = self._staged
        if staged is None:
            return None
        self._next = self._engine.turn + 1
        self.stages.shut(self._turns)  # the next passes wait for what is under way
        staged.message = self._engine.outgoing()
        book.enter(tally, staged.message)
        staged.send()
        self._staged = None
        return self._ended

    def close(self) -> None:
        """Other ranks wait for what is under way, so that is sent, made or not: a rank which fails is heard of in the
        next call."""
        if (staged := self._staged) is not None:
            staged.stop()
            staged.send()
