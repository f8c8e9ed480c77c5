"""An exchange in buckets: sent while the backward pass goes on, and while the next forward pass does.

What a backward pass has ended is updated and sent at once (the buckets of DDP, arXiv:2006.15704; S-Caffe's aggregation
in stages); what is left is sent in the order in which the next forward pass needs it, which waits for each bucket
where it first reads its weights (S-Caffe's propagation). Sums over ranks do not depend on how the array is cut, nor
local steps and rules on the order of elements: the bits are those of one exchange.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np

from mpibow.comm import Communicator
from mpibow.comm.communicator import POLL
from mpibow.kernels import Local
from mpibow.trace import Trace

from .buckets import Buckets, Share, Stages, Way, WayTrial, chosen
from .engine import Engine, OnChunks
from .outbox import Book, Tally

EARLY = 0.95  # of the time that a bucket took before, its end is looked for
QUIET = np.errstate(over="ignore", invalid="ignore")  # the learners' next losses show an overflow


class Staged:
    """One exchange: `run` beside the learners, `stop` when they have ended, `send` once the rest is updated, `finish`.

    Three threads take part, each with work of one kind: `run` watches the learners and updates, as long as all is
    finite; the communication thread sends; `applies` makes the rule's passes, bucket by bucket. `turn` grows.
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
        buckets = self._buckets
        engine = self._buckets.engine
        stages = self._buckets.stages
        begin, delays = time.perf_counter(), buckets.delays
        if before is not None:
            before.result()
        self._whole = engine.sending
        self._passes = engine.passes(self._local, self._whole.reshape(1, -1))
        for b in range(buckets.ahead):
            over = False
            while not (over or stages.reached(buckets.of_stages[b][-1])):
                over = self._over.wait(max(begin + delays[b] - time.perf_counter(), POLL))
            delays[b] = EARLY * (time.perf_counter() - begin)
            if over or not all(map(stages.finite, buckets.of_stages[b])):
                return
            with self._claim:
                if self._over.is_set():
                    return
                self._claimed = b + 1
            with buckets.trace.span("communication", "update"):
                step = engine.update(self._local)
                for part in buckets.chunks[b]:
                    step(part)
            self.send(b + 1)

    def stop(self) -> list[range]:
        """The learners have ended: the chunks that are still to be updated."""
        with self._claim:
            self._over.set()
        return [part for own in self._buckets.chunks[self._claimed :] for part in own]

    def open(self) -> None:
        """The next passes do not wait any more."""
        for i in range(len(self._buckets.stages.chunks)):
            self._buckets.stages.open(i, self._turn)

    def send(self, count: int | None = None) -> None:
        """So many buckets, or all, are updated; with the last one the numbers beside the sums are entered."""
        if not self._whole.size:  # `run` has failed before it began
            return
        buckets = self._buckets
        now, order = time.perf_counter(), buckets.order
        self._written += [now] * ((count or len(order)) - len(self._written))
        if self._sent is None:
            parts = [buckets.spans(b, self._whole.size - buckets.engine.size) for b in order]
            written = self._written.__len__
            sends = buckets.comm.allreduce_in_parts
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

    @QUIET
    def _apply(self, b: int) -> None:
        buckets = self._buckets
        with buckets.trace.span("averaging", f"bucket {b + 1}"):
            for each in self._passes:
                for part in buckets.chunks[b]:
                    each(part)
        for i in buckets.of_stages[b]:
            buckets.stages.open(i, self._turn)


class Ahead:
    """Exchanges in buckets of a run: by `way`, or by the one that a trial finds to be the best."""

    def __init__(
        self, comm: Communicator, engine: Engine, stages: Stages, chunk: int, trace: Trace, way: Way | WayTrial
    ) -> None:
        self._cut = cache(partial(Buckets, comm, engine, stages, chunk, trace))  # by the way
        self._engine, self.stages = engine, stages
        self._buckets = self._cut(way) if isinstance(way, Way) else None
        self._trial = way if isinstance(way, WayTrial) else None
        self._updates, self._applies = (ThreadPoolExecutor(1, name) for name in ("updates", "applies"))
        self._staged: Staged | None = None  # of this iteration
        self._updated = Future[None]()
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

    def begin(self, local: Local, before: Future[Any] | None, sends: Executor, share: Share) -> None:
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
            self._staged = Staged(self._buckets, local, self._turns, sends, self._applies)
            self._updated = self._updates.submit(QUIET(self._staged.run), before)

    def stop(self) -> list[range] | None:
        """The learners have ended: the chunks that are still to be updated; None if these are all."""
        return None if self._staged is None else self._staged.stop()

    def end(self, tally: Tally, book: Book) -> Callable[[], Tally | None] | None:
        """All is updated: sends the rest. Returns what the communication thread still has to do; None: all of it."""
        staged = self.under_way = self._staged
        if staged is None:
            return None
        self._next = self._engine.turn + 1
        self.stages.shut(self._turns)  # the next passes wait for what `finish` brings
        self._updated.exception()  # it has an update to end at most, whose bucket is sent in front of the others
        message = self._engine.outgoing()
        book.enter(tally, message)
        staged.send()
        self._staged = None
        return partial(self._finish, staged, self._updated, partial(book.close, message))

    @QUIET
    def _finish(self, staged: Staged, updated: Future[None], close: Callable[[], Tally | None]) -> Tally | None:
        try:
            updated.result()  # raises its error
            staged.finish()
            self._engine.advance()
            return close()
        finally:
            staged.open()  # also where it has failed

    def close(self, sends: Executor) -> None:
        """Ends the threads, `sends` among them. Other ranks wait for what is under way, so that is sent, made or not:
        a rank which fails is heard of in the next call."""
        if (staged := self._staged) is not None:
            staged.stop()
            self._updated.exception()
            staged.send()
        self._updates.shutdown()
        sends.shutdown()  # it submits to the last
        self._applies.shutdown()
