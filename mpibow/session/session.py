"""A session: what happens in and between the iterations of a run that opening.py opens; the loop is in train.py."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from mpibow.comm.binding import core_limits
from mpibow.comm.communicator import Communicator
from mpibow.data.slots import Slot
from mpibow.job import Job
from mpibow.kernels.passes import Local
from mpibow.learn.learner import Result, Task
from mpibow.optim.schedules import multiplier
from mpibow.run import checkpoint
from mpibow.run.announcer import Announcer
from mpibow.run.coordinator import Request, settle_requests
from mpibow.run.evaluate import due
from mpibow.run.iteration_times import IterationTimes
from mpibow.run.memory import TAKEN, free_memory
from mpibow.run.state import named, snapshot
from mpibow.session.opening import Opened
from mpibow.session.summary import Trained
from mpibow.sync.rule import gain_of
from mpibow.sync.settings import Sma
from mpibow.sync.synchroniser import Tally
from mpibow.trace import SILENT, Trace
from mpibow.tune import Counts, Decision


class Session(Opened):
    """Every rank makes one and calls the same methods in the same order; use it in a `with` statement."""

    def __init__(
        self, job: Job, comm: Communicator, resume: str | None = None, note: str = "", trace: Trace = SILENT
    ) -> None:
        with ExitStack() as stack:
            super().__init__(job, comm, resume, note, trace, stack)
            self._saved_at = time.perf_counter()
            self.announcer = Announcer(
                self.coordinator, self.rank, self.synchroniser.talk, partial(self.learners.bind_within, self._room),
                lambda rank, count, why: self.reporter.no_memory(self.where, rank, count, why),
            )  # fmt: skip
            self._limits = Counts()  # the learners that every rank's binding was last asked about
            if (decided := self.tuning.decision) and decided.counts != self.coordinator.announced:
                self._tune(decided)  # the memory, or tuner.most, is another one
            self._read(stack)
            if self._owed and self.evaluate() and self.config.checkpoint.interval and self.config.checkpoint.best:
                self.save(best=True)
            self._iteration_times = IterationTimes(lambda: self.synchroniser.seconds()[0])
            self._stack = stack.pop_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # What the loop asks for, iteration by iteration
    def limit_reached(self) -> str:
        """The first limit of `stop` that is reached, '' if none is."""
        accurate = self.ledger.epochs_to_target is not None
        return self.config.stop.reached(self.iteration, self.position, self.job.train.count, accurate=accurate)

    def prepare(self) -> Local:
        """This iteration's local step; averaging starts again where learners change or the rate drops."""
        lap = self._iteration_times.lap()  # of the iteration before
        if lap is not None and self.learners.execution == self.coordinator.execution:  # a change takes a while to come
            self.tuning.measured(*lap, self.counts)
        with self._iteration_times.aside():
            self.reporter.note(self.trace.begin(self.iteration, self.synchroniser.call))
            self._change()
        update = self.config.update
        rate = update.lr * multiplier(self.config.schedule, update.warmup, self.where.epoch)
        return Local(rate, update.momentum, update.nesterov, update.weight_decay, self.plan.layout.decayed)

    def _change(self) -> None:
        """What the timeline says of this iteration, and the rate."""
        change, begin = self.coordinator.timeline().change(self.iteration), time.perf_counter()
        if change.counts != self.counts:
            self._read_centre()  # with which new learners begin
            self.check([], self.config.update.lr)  # what came late is of learners that may go now
            self.change_learners(change.counts, change.execution)
            self.ledger.changes += 1
            self.reporter.changed(self.where, time.perf_counter() - begin + self.announcer.seconds())
        elif self.iteration > self.coordinator.timeline().changes[0].iteration and self._restart_due():
            self.settle()
            self.rule.restart()
        if change.execution != self.learners.execution:
            self.learners.change(self.replicas.count, change.execution)  # averaging goes on
            self.reporter.executed(self.where, time.perf_counter() - begin + self.announcer.seconds())

    def tasks(self, slots: list[Slot]) -> list[Task]:
        """What the learners' threads are to do: one slot each."""
        if self._times is not None:
            self._times.begin(self.learners.working)
        return self.learners.tasks(slots)

    def receive(self) -> None:
        """Ends the exchange under way, if any; the next update brings the centre up to date."""
        self._heed(self.synchroniser.receive())
        if self._times is not None:
            self._times.note(self.learners.working)

    def settle(self) -> None:
        """As `receive`, and the centre is up to date: to be read, or changed."""
        self._heed(self.synchroniser.settle())

    def _read_centre(self) -> None:
        """As `settle`, by all ranks: also the centre that does not follow its replicas is up to date."""
        self.settle()
        if not self.rule.follows:
            self.synchroniser.agree(sum(self.counts))

    def _heed(self, tally: Tally | None) -> None:
        self._gain = gain_of(self.rule)  # which changes while an exchange is under way
        if tally is not None:
            self._asked = self._asked or tally.attention > 0
            self.ledger.loss += tally.loss
            self.ledger.hits += tally.hits
            self.ledger.samples += self._untold
            self._untold = 0

    def check(self, found: Sequence[Result | None], rate: float) -> list[Result]:
        """The finite results. A learner whose loss or gradient is not is reset, or ends the run (`on_nan`)."""
        return self.resets.check(found, rate, self.iteration, sum(self.counts[: self.rank]), self.saved)

    def tally(self, results: list[Result], signal: str) -> Tally:
        """What this rank tells the others beside its steps."""
        attention = self._request(signal).attention
        return Tally(attention, sum(result.loss for result in results), sum(result.hits for result in results))

    def advance(self, rate: float, signal: str) -> str:
        """Ends an iteration: requests, metrics, evaluation, checkpoint where due. The reason to stop now, if any."""
        config, before = self.config, self.position
        self.iteration += 1
        self.pulse.beat("iteration")
        self.ledger.images += self.position - before
        self._untold += self.position - before
        stop, save, best = "", False, False
        if self.rank == 0:
            self.reporter.damaged(self.loading.damaged())
        self.reporter.note(self._watch(self.reporter.clock(), self.pipeline.waited))
        if self._asked:  # every rank read this from the same all-reduce
            with self._iteration_times.aside():
                stop, save = self._talk(signal)
        if self.iteration % config.metrics.every == 0:
            with self._iteration_times.aside():
                found = self.synchroniser.distances() if self.rank == 0 else []
            self.reporter.trained(self.where, rate, self._gain, self.resets.losses, found)
        if self.iteration % config.rule.resync == 0:
            self._agree()
        self._owed = self.judge is not None and self._passed(before, config.evaluate.every)
        with self._iteration_times.aside():
            if self._owed and not stop:
                best = self.evaluate()
            save = save or config.checkpoint.due(self.iteration, best, partial(self._passed, before))
            if save or stop.startswith("SIG"):
                self.save(best)
        self.reporter.show(self.where, self._gain)
        return stop

    # What happens between iterations

    def evaluate(self) -> bool:
        """Evaluates the centre on the data that choose; whether it is the best so far."""
        assert self.judge is not None
        self._owed = False
        self._read_centre()
        self.reporter.clock()
        best = self.judge.choose(self.where, self.rule.centre, self.statistics())
        self._tell_damages()
        return best

    def save(self, best: bool = False) -> None:
        """Writes a checkpoint on all ranks, and forgets those that are not to be kept."""
        self._read_centre()
        self.resets.check_centre(self.iteration, self.saved)
        self.reporter.clock()
        begin = time.perf_counter()
        folder = self.reporter.folder / "checkpoints"
        self._tell_resets()
        diverged = any(self.synchroniser.call(lambda comm: comm.share(self.resets.due)))
        header = {
            **self._lasting,
            "counts": self.counts,
            "tuning": self.tuning.state(),
            "ledger": self.ledger.state(),
            "due": [self._asked, diverged, self._owed],
            "untold": self._untold,
            "metrics_bytes": self.synchroniser.call(lambda comm: comm.share(self.reporter.mark()))[0],
        }
        with self.trace.span("checkpoint", "save"):
            state = snapshot(
                header, self.plan, self.coordinator.kept(self.iteration), self.iteration, self.replicas, self.rule,
                self.job.kernels.flat, self.statistics(), self.synchroniser.book.state(),
                {} if self.job.scaling is None else self.job.scaling.arrays(),
                None if self.gpu is None else self.gpu.scale_state(),
            )  # fmt: skip
            self.saved = checkpoint.save(folder, state, self.synchroniser.call)
        if self.rank == 0:
            if best and self.config.checkpoint.best:
                checkpoint.point(folder, "best", self.saved)
            checkpoint.prune(folder, self.config.checkpoint.keep, self.saved)
        self.reporter.saved(self.where, self.saved, time.perf_counter() - begin)

    def finish(self, stop: str) -> Trained:
        """The end of a run that reached a limit, or was told to stop: what it came to, on rank 0 also on disk."""
        self._read_centre()
        self.resets.end(self.iteration, sum(self.counts[: self.rank]), self.saved)
        self.reporter.clock()
        self._tell_resets()
        if not stop.startswith("SIG"):
            late = self.judge is not None and self.ledger.evaluated_at != self.position
            best = self.evaluate() if late else False
            saved = self.saved is not None and self.saved.name == checkpoint.name_of(self.iteration)
            if self.config.checkpoint.interval is not None and (late or not saved):
                self.save(best)
            if self.judge is not None:
                self.reporter.clock()
                self.judge.test(self.where, self.rule.centre, self.statistics())
                self._tell_damages()
        self.reporter.note(self.trace.end(self.synchroniser.call))
        decided = self.tuning.decision
        summary = self.reporter.summary(
            self.where, stop, gain=gain_of(self.rule), checkpoint=self.saved,
            settled=None if decided is None else decided.settled,
        )  # fmt: skip
        self.reporter.end(self.where, summary)
        return Trained(
            summary, named(self.plan, self.job.kernels.flat.host(self.rule.centre).copy(), self.statistics())
        )

    def _request(self, signal: str) -> Request:
        """What this rank wants now, and what rank 0's clock says."""
        stop, save = signal, False
        if self.rank == 0:
            stop = signal or self.config.stop.overdue(self.reporter.clock())
            save = self.config.checkpoint.overdue(time.perf_counter() - self._saved_at)
        return Request(stop, save, self.resets.due, self.tuning.asks)

    def _talk(self, signal: str) -> tuple[str, bool]:
        """All ranks say what they want and do the same; (reason to stop, whether to save)."""
        requests = self.synchroniser.talk(replace(self._request(signal), reading=self.tuning.reading()))
        outcome = settle_requests(requests)
        self._asked = False
        if outcome.resync:
            self._tell_resets()
            self._agree()
            self.resets.due = False
        if outcome.stop:
            who = f" on rank {outcome.rank}" if outcome.stop.startswith("SIG") else ""
            self.reporter.note(f"iteration {self.iteration}: {outcome.stop}{who}")
        if outcome.save:
            self._saved_at = time.perf_counter()
        if (tuned := self.tuning.conclude([request.reading for request in requests])) is not None:
            self._tune(tuned)
        return outcome.stop, outcome.save

    def _tune(self, decided: Decision) -> None:
        """Has the learners that were decided on come, once every rank has bound its own."""
        tuned = self.announcer.follow(self.tuning, decided, self.iteration)
        self.reporter.tuned(self.where, tuned, self.tuning.basis())
        if self.gpu is None and tuned.settled and tuned.counts != self._limits:
            self._limits = tuned.counts
            for text in self.synchroniser.call(lambda comm: core_limits(comm, tuned.counts)):
                self.reporter.note(text)

    def _room(self) -> int:
        """Bytes that new learners may take; a GPU's, which ranks may share, by all of them."""
        free = free_memory(self.comm.local_size) if self.gpu is None else self.synchroniser.call(self.gpu.free)
        return int(TAKEN * free)

    def _tell_resets(self) -> None:
        """Every rank enters the resets of all, and the damaged samples."""
        own = self.resets.tell()
        for texts in self.synchroniser.call(lambda comm: comm.share(own)):
            self.ledger.resets += len(texts)
            for text in texts:
                self.reporter.note(text)
        self._tell_damages()

    def _tell_damages(self) -> None:
        for damaged in self.synchroniser.call(lambda comm: comm.share(self.loading.damaged())):
            self.reporter.damaged(damaged)

    def _agree(self) -> None:
        self.settle()
        with self.trace.span("synchronisation", "agree"):
            found = self.synchroniser.agree(sum(self.counts))
        self.reporter.agreed(self.where, found)

    def _passed(self, before: int, epochs: float) -> bool:
        return due(before, self.position, self.job.train.count, epochs)

    def _restart_due(self) -> bool:
        """Whether `rule.restart` wants averaging to start again before this iteration."""
        rule, timeline, count = self.config.rule, self.coordinator.timeline(), self.job.train.count
        before, now = timeline.position(self.iteration - 1) / count, self.position / count
        return isinstance(rule, Sma) and rule.restarts(before, now, self.config.schedule.drops(before, now))
