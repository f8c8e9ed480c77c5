"""The synchroniser: a rule's updates and exchanges, one after the other, or beside the learners' next gradients."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from mpibow.comm import Communicator
from mpibow.graph.kernel import Posted
from mpibow.kernels import FlatKernels, Local, chunks_of, share_of
from mpibow.kernels.passes import pieces
from mpibow.trace import SILENT, Trace

from .agreement import add_up
from .ahead import QUIET, Ahead, Staged
from .buckets import rest
from .distance import distances
from .engine import Engine, OnChunks
from .outbox import Book, Message, Tally as Tally
from .rows import Rows

T = TypeVar("T")
RunTasks = Callable[[list[Callable[[], Any]]], Any]  # the scheduler's: all tasks at once, on the learners' threads


class Inline(Executor):
    """Runs at once on the caller's thread: nothing overlaps.

    For an MPI library that serves one thread only; and where nothing would overlap anyway, since waking a thread takes
    longer than much of what is sent.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Synchroniser:
    """The one thread that talks to the other ranks: with `overlap`, and a rule that overlaps or an exchange in buckets,
    its own, beside compute; else the caller's.

    Overlapped, in buckets or neither, the sums and what follows from them are the same bits. Where `book` enqueues, all
    that follows an exchange is enqueued behind it, and the host is notified when it ends.
    """

    def __init__(
        self, comm: Communicator, engine: Engine, rows: Rows, flat: FlatKernels, run: RunTasks, *, overlap: bool,
        trace: Trace = SILENT, book: Book | None = None, ahead: Ahead | None = None,
    ):  # fmt: skip
        """`ahead`: exchanges that learners wait for are made in buckets."""
        self._comm = comm
        self._engine = engine
        self._rows = rows
        self._run = run
        self._overlap = overlap
        self._flat = flat
        self._trace = trace
        self._waiting = trace if comm.size > 1 else SILENT  # there is nobody to wait for
        self.book = book or Book()
        beside = comm.any_thread and comm.size > 1 and overlap
        self.ahead = ahead if beside else None
        self._threaded = comm.any_thread and (self.book.enqueues or (beside and (engine.overlaps or ahead is not None)))
        self._thread: Executor = (
            ThreadPoolExecutor(1, "communication", initializer=self.book.attach) if self._threaded else Inline()
        )
        self._pending: Future[Tally | None] | None = None
        self._beside = False  # the exchange under way ends only when it is received
        self._passes: Sequence[OnChunks] = ()  # by the exchange under way
        self._due: Sequence[OnChunks] = ()  # passes that the centre waits for
        self._recorders = dict[Any, Any]()  # by worker, and whether of all chunks
        self._rests = dict[int, Any]()
        # Seconds that exchanges took, other ranks' lateness included, and those of them that learners stood still for.
        # Both are entered where an exchange's end is waited for: 1 - waited / busy is what was hidden behind compute.
        # On a GPU `seconds` has them, and `waited` stays 0: the host that waits is not the learners.
        self.waited = self.busy = 0.0
        self.stood = 0.0  # seconds that the caller had nothing to do, whoever computed meanwhile
        self._talked = 0.0
        self._took = 0.0  # of the exchange that has ended, not yet in `busy`

    @property
    def _staged(self) -> Staged | None:
        """The exchange in buckets under way."""
        return None if self.ahead is None else self.ahead.under_way

    @property
    def _chunks(self) -> range:
        return chunks_of(self._rows.weights.shape[1], self._flat.chunk)

    def call(self, function: Callable[[Communicator], T]) -> T:
        """Runs `function` with the communicator on the communication thread, after what is under way."""

        def traced() -> T:
            with self._trace.span("communication", "call"):
                return function(self._comm)

        return self._thread.submit(traced).result()

    def talk(self, own: T) -> list[T]:
        """Every rank's `own`, by rank. To be waited for like an exchange that nothing is computed beside: that which is
        under way, and ranks that come later; and counted as one."""
        begin = time.perf_counter()
        with self._waiting.span("waiting", "talk"):
            found = self.call(lambda comm: comm.share(own))
        self._talked += time.perf_counter() - begin if self._comm.size > 1 else 0.0
        return found

    def begin(self, local: Local) -> None:
        """The learners are about to compute their gradients: what is done of them is updated and sent meanwhile."""
        if self.ahead is not None and (self._pending is None or not self._beside):
            self.ahead.begin(local, self._pending, self._thread, self.book, self.talk)

    def update(self, local: Local, workers: int) -> None:
        """The local steps and corrections of this rank, cut over `workers` threads.

        The last exchange's passes for the centre run on the way, a piece at a time, while it is in the cache.
        """
        due = self._due
        self._due = ()
        self.book.gather()
        if local.directs is not None and not self._engine.alike:  # replicas that are alike take one step, of the sum
            arrays = self._rows.trained
            self._on_learners(workers, local.directs(arrays.states, arrays.gradients))

        step = self._engine.update(local)

        def work(chunks: range) -> None:
            for part in pieces(chunks, self._flat.chunk):
                for each in (*due, step):
                    each(part)

        parts = None if self.ahead is None else self.ahead.stop()
        self._on_learners(workers, work if due else step, parts, not due)

    @QUIET
    def exchange(self, tally: Tally, local: Local, workers: int) -> None:
        """Begins this iteration's exchange, and ends it where it can't be overlapped."""
        assert self._pending is None
        if self.ahead is not None and (pending := self.ahead.end(tally, self.book)) is not None:
            self._beside = False
            self._pending = pending
            return
        message = self._engine.outgoing()
        self._beside = self._engine.overlaps and not (message is None and self.ahead is not None)
        self.book.enter(tally, message)
        if self.book.enqueues:
            issued = self._thread.submit(self._issue, message, local)
            self._pending = self._thread.submit(self._close, issued, message)
            if not self._beside:
                issued.result()  # learners wait for what it enqueues
            if not self._overlap:
                self._pending.result()
            return
        thread = self._thread if self._beside or self.ahead is None else Inline()  # which wakes up sooner
        submit = partial(thread.submit, self._reduce, message, local)
        self._pending = submit() if self._beside and self._threaded else self._stand_still(submit)
        if not self._beside:
            self._pending.result()  # sums that did not arrive must not be applied
            for each in self._passes:
                self._on_learners(workers, each)
            self._engine.advance()

    def seconds(self) -> tuple[float, float]:
        """Seconds that learners stood still for exchanges and talk, and that these took; one rank waits for nobody."""
        if self._comm.size == 1:
            return 0.0, 0.0
        waited, busy = self.book.seconds() or (self.waited, self.busy)
        return waited + self._talked, busy + self._talked

    def receive(self) -> Tally | None:
        """Ends the exchange under way, if any: the tally of all ranks, if it was sent. The next update may come."""
        beside = self._overlap and self._threaded and self._engine.overlaps
        if self._pending is None:
            self.book.join(beside)
            return None
        pending = self._pending
        self._pending = None
        staged = self._staged
        if self._threaded and (self._beside or staged is not None or self.book.enqueues):  # else it has ended
            self._stand_still(lambda: pending)
            if self.ahead is not None and staged is not None:
                self.waited += self.ahead.stages.stalled()
                self.busy += staged.seconds
        tally = pending.result()
        self.book.join(beside)
        if self._beside and not self.book.enqueues:
            self._due = self._passes
            self._engine.advance()
        return tally

    def _stand_still(self, exchange: Callable[[], Future[T]]) -> Future[T]:
        """The exchange that `exchange` gives, or makes on this thread, when it has ended; errors are in its result."""
        begin = time.perf_counter()
        with self._waiting.span("waiting", "averaging"):
            pending = exchange()
            pending.exception()
        seconds = time.perf_counter() - begin
        self.stood += seconds
        if not self.book.enqueues:  # else the device has gone on computing
            self.waited += seconds
        self.busy += self._took
        self._took = 0.0
        return pending

    @QUIET
    def settle(self) -> Tally | None:
        """As `receive`; the centre then includes the last update, and may be read or changed, as may gradients."""
        tally = self.receive()
        if self.ahead is not None:
            self.ahead.stop()
        for each in self._due:
            each(self._chunks)
        self._due = ()
        self._recorders.clear()  # arrays may be other ones from here on
        self._engine.settle()
        return tally

    @QUIET
    def end_period(self, local: Local) -> bool:
        """Exchanges the steps that wait for the end of a period and restarts averaging, if any do; after `settle`."""
        exchanges = self._engine.end_period()
        for _ in range(exchanges):
            message = self._engine.outgoing()
            if message is not None:
                add_up(self.call, message.whole, self.book.stream)
            for each in self._engine.passes(local, None if message is None else message.rows):
                each(self._chunks)
            self._engine.advance()
            if self._engine.meter is not None:
                self._engine.meter.see()  # before a restart or another number of learners
        if exchanges:
            self._engine.restart()
        return exchanges > 0

    @QUIET
    def _reduce(self, message: Message | None, local: Local) -> Tally | None:
        if message is None:
            self._passes = self._engine.passes(local, None)
            return None
        begin = time.perf_counter()
        with self._trace.span("communication", "all-reduce"):
            if self._beside:
                self._comm.allreduce(message.whole)
                sums = message.rows
            else:
                sums = self._comm.sum(message.whole)  # learners add the ranks' rows up as they apply them
        self._passes = self._engine.passes(local, sums)
        self._took = time.perf_counter() - begin
        return self.book.close(message.summed(sums))

    def _issue(self, message: Message | None, local: Local) -> None:
        """Enqueues an exchange, and what the centre owes it. Host memory on the way: then it is over on return."""
        begin = time.perf_counter()
        if message is not None:
            with self._trace.span("communication", "all-reduce"):
                if self._comm.size > 1:  # a communicator of the host alone takes no device's arrays
                    self.book.begin()
                    self._comm.allreduce(message.whole, self.book.stream)
        for each in self._engine.passes(local, None if message is None else message.rows):
            each(self._chunks)
        self._engine.advance()
        self.book.sent(message)
        self._took += time.perf_counter() - begin

    def _close(self, issued: Future[None], message: Message | None) -> Tally | None:
        issued.result()  # raises its error
        with self._trace.span("communication", "wait"):
            return self.book.close(message)

    def _on_learners(
        self, workers: int, work: OnChunks, parts: Sequence[range] | None = None, step: bool = False
    ) -> None:
        """`work` on all chunks, or on these `parts` of them. The `step` of all may be commands."""

        @QUIET
        def share(i: int) -> None:
            for part in [self._chunks] if parts is None else parts:
                work(share_of(part, i, workers))

        def begin(i: int) -> tuple[int, int] | None:
            if not step or (make := self._flat.Recorder) is None:
                return None
            key = i, parts is None
            recorder = self._recorders[key] = self._recorders.get(key) or make()
            made = recorder.record(work, share_of(self._chunks, i, workers))
            if parts is not None:
                made = self._rests[i] = rest([share_of(part, i, workers) for part in parts], made)
            place: tuple[int, int] = made.place
            return place

        with self._trace.span("synchronisation", "update"):
            self._run([Posted(partial(share, i), partial(begin, i)) for i in range(workers)])

    @QUIET
    def distances(self) -> list[float]:
        """The distances of this rank's replicas from the mean of all, between `exchange` and `receive`.

        [] if that would need a wait: on a GPU, and while an exchange with other ranks is under way.
        """
        if self._staged is not None or self.book.enqueues or (self._comm.size > 1 and self._engine.overlaps):
            return []
        return distances(self._rows.weights, None if self._comm.size == 1 else self._engine.centre)

    def close(self) -> None:
        if self.ahead is not None:
            self.ahead.close()
        self._thread.shutdown()
