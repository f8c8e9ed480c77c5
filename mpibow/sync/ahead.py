"""An exchange in buckets: sent while the backward pass goes on, and while the next forward pass does.

What a backward pass has ended is updated and sent at once (the buckets of DDP, arXiv:2006.15704; S-Caffe's aggregation
in stages); what is left is sent in the order in which the next forward pass needs it, which waits for each bucket
where it first reads its weights (S-Caffe's propagation). Sums over ranks do not depend on how the array is cut, nor
local steps and rules on the order of elements: the bits are those of one exchange.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import cache, partial
from typing import Any

import numpy as np

from mpibow.comm import Communicator
from mpibow.graph.stages import Stages
from mpibow.kernels import FlatKernels, Local
from mpibow.trace import Trace

from .buckets import Buckets, Share, Way, WayTrial, chosen
from .engine import Engine
from .outbox import Book, Message, Tally

QUIET = np.errstate(over="ignore", invalid="ignore")  # the learners' next losses show an overflow
SHORT = 5e-5  # seconds
WRITTEN, HOLD, TURN, BUSY, ENDED = 0, 2, 3, 1, 2  # as mpibow.kernels.compiled.buckets has them, which needs numba


class Staged:
    """One exchange. `run` is all of it, on the communication thread: it also updates the buckets that the learners have
    ended, as long as all is finite. The main thread calls `stop` when they have ended their pass, updates the rest, and
    calls `send`. `turn` grows.
    """

    def __init__(self, buckets: Buckets, local: Local, turn: int):
        self._buckets = buckets
        self._local = local
        self._words = np.array([0, 0, BUSY, turn])  # as mpibow.kernels.compiled.buckets has them
        self._sent = 0  # when the last bucket was updated, ns
        self.seconds = 0.0  # that sums took
        self.message: Message | None = None

    @QUIET
    def run(self, before: Future[Any] | None, close: Callable[[Message | None], Tally | None]) -> Tally | None:
        """After the exchange `before` this one, whose error it raises."""
        buckets = self._buckets
        engine = self._buckets.engine
        try:
            if before is not None:
                before.result()
            times = np.zeros((len(buckets.order), 4), np.int64)
            buckets.exchange(self._local, self._words, times)
            engine.advance()
            self._note(times.tolist())
            return close(self.message)
        finally:  # also where it has failed
            self._words[HOLD] = ENDED
            buckets.stages.open(int(self._words[TURN]))

    def stop(self) -> list[range]:
        """The learners have ended: the chunks that are still to be updated."""
        from mpibow.kernels.compiled import buckets

        while not buckets.hold(self._words):  # it has to begin, or to end an update
            time.sleep(SHORT)
        return [part for own in self._buckets.chunks[self._words[WRITTEN] :] for part in own]

    def send(self) -> None:
        """All buckets are updated; with the last one the numbers beside the sums are entered."""
        self._sent = time.perf_counter_ns()
        self._words[WRITTEN] = len(self._buckets.order)

    def _note(self, times: Sequence[Sequence[int]]) -> None:
        """Of each bucket: begun and updated ahead of the learners' end, added up, applied."""
        last = 0
        trace = self._buckets.trace
        for b, (begun, updated, added, applied) in zip(self._buckets.order, times, strict=True):
            begin = max(updated or self._sent, last)
            self.seconds += (added - begin) / 1e9
            if trace.on:
                if updated:
                    trace.add("communication", "update", begun, updated)
                trace.add("communication", f"all-reduce of bucket {b + 1}", begin, added)
                trace.add("averaging", f"bucket {b + 1}", added, applied)
            last = applied


class Ahead:
    """Exchanges in buckets of a run: by `way`, or by the one that a trial finds to be the best."""

    def __init__(
        self, comm: Communicator, engine: Engine, stages: Stages, flat: FlatKernels, trace: Trace, way: Way | WayTrial
    ):
        self._cut = cache(partial(Buckets, comm, engine, stages, flat, trace))  # by the way
        self._engine = engine
        self.stages = stages
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
        news = self._news
        self._news = ""
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
