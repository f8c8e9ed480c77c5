"""A session: the work in and between the iterations of a run, on the parts that opening.py makes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from mpibow.comm.binding import core_limits
from mpibow.comm.communicator import Communicator
from mpibow.data.slots import Slot
from mpibow.data.wait import Watch
from mpibow.graph.graph import Array
from mpibow.job import Job
from mpibow.job.measures import directions
from mpibow.kernels.passes import Local
from mpibow.learn.learner import Result, Task
from mpibow.run.announcer import Announcer
from mpibow.run.evaluate import due
from mpibow.run.iteration_times import IterationTimes
from mpibow.run.memory import TAKEN
from mpibow.run.state import named
from mpibow.run.steering import Steering
from mpibow.session.average import average_of
from mpibow.session.opening import OpenParts, open_parts, open_pipeline
from mpibow.session.rates import rate_of, restarts, switches
from mpibow.session.requests import Requests
from mpibow.session.saving import Saver
from mpibow.session.stages import Stages
from mpibow.session.summary import Trained
from mpibow.session.switching import switch_rule
from mpibow.session.where import Where
from mpibow.sync.rule import gain_of
from mpibow.sync.synchroniser import Tally
from mpibow.trace import SILENT, Trace
from mpibow.tune import Counts, Decision


class Session:
    """Every rank makes one in a `with`, and calls the same methods in the same order; `made` makes its parts."""

    def __init__(
        self, job: Job, comm: Communicator, resume: str | None = None, note: str = "", trace: Trace = SILENT,
        made: OpenParts = open_parts,
    ) -> None:  # fmt: skip
        with ExitStack() as stack:
            parts = made(job, comm, resume, note, trace, stack)
            self.job, self.config, self.rank, self.trace = parts.job, parts.job.config, comm.rank, trace
            self.plan, self.loading, self._pulse = parts.plan, parts.loading, comm.pulse
            self.replicas, self.learners, self.stepping = parts.replicas, parts.learners, parts.stepping
            self.scheduler, self.rule, self.synchroniser = parts.scheduler, parts.rule, parts.synchroniser
            self.resets, self.coordinator, self.tuning = parts.resets, parts.coordinator, parts.tuning
            self.judge, self.stages = parts.judge, Stages(self.job, parts.state, parts.learners)
            self.reporter, self.ledger = parts.reporter, parts.reporter.ledger
            self.average = average_of(self.config.ema, parts.start, self.plan)
            self.steering = Steering(self.config.stop, self.config.schedule, self.ledger, directions(self.job.measures))
            self.iteration, self.counts = parts.start.iteration, parts.start.learners[0]
            self._owed = parts.start.due[2]  # to evaluate
            self._untold = parts.start.kept.untold if parts.start.kept else 0  # samples whose losses were not sent yet
            self._gain, self._saver = gain_of(self.rule), Saver(parts, comm.rank)
            self.requests = Requests(parts, comm.rank, self._saver)
            self._tell = partial(self.reporter.tell, self.synchroniser.call, self.loading.damaged)
            self._iteration_times = IterationTimes(lambda: self.synchroniser.seconds()[0])
            self._watch, self._settled = Watch(self.loading.remedy), Counts()
            self.announcer = Announcer(
                self.coordinator, self.rank, self.synchroniser.talk,
                partial(self.learners.bind_within, self._room),
                lambda rank, count, why: self.reporter.no_memory(self.where, rank, count, why),
            )  # fmt: skip
            self.reporter.start(self.where, self.job.title, parts.notes, parts.start.told)
            if (decided := self.tuning.decision) and decided.counts != self.coordinator.announced:
                self._tune(decided)  # memory or tuner.most may have changed
            self.pipeline = open_pipeline(parts, comm.rank, trace, stack)
            self.reporter.pause()
            if self._owed and self.evaluate() and self.config.checkpoint.interval and self.config.checkpoint.best:
                self.save(best=True)
            self._stack = stack.pop_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def limit_reached(self) -> str:
        """The first limit of `stop` that is reached, '' if none is."""
        return self.steering.limit_reached(self.iteration, self.position, self.job.train.count)

    def prepare(self) -> Local:
        """This iteration's local step; averaging starts again where learners change or the rate drops."""
        lap = self._iteration_times.lap()  # of the iteration before
        if lap is not None and self.learners.execution == self.coordinator.execution:  # a change takes a while to come
            self.tuning.measured(*lap, self.counts)
        with self._iteration_times.aside():
            self.reporter.note(self.trace.begin(self.iteration, self.synchroniser.call))
            self._change()
        samples = self.config.batch_size * (sum(self.counts) if self.rule.alike else 1)  # of an update of states
        return self.stepping.at(rate_of(self.config, self.where, self.steering), samples)

    def _change(self) -> None:
        """Makes the changes that begin here: weights trained, rule, learners, execution, restarts of averaging."""
        timeline, begin = self.coordinator.timeline(), time.perf_counter()
        change, where = timeline.change(self.iteration), self.where
        if self.stages.reached(where.epoch):
            self.settle()
            self.reporter.note(self.stages.begin(where.epoch, sum(self.counts)))
        switch = switches(self.config, timeline, self.job.train.count, where)
        if switch or change.counts != self.counts:
            self.end_period()
            self.read_centre()  # with which the other rule and new learners begin
        if switch:
            self.reporter.note(switch_rule(self.rule, self.replicas, self.synchroniser, self.config, where))
        if change.counts != self.counts:
            self.check([], self.config.update.lr)  # late results belong to learners that may go now
            self.change_learners(change.counts, change.execution)
            self.ledger.changes += 1
            self.reporter.changed(self.where, time.perf_counter() - begin + self.announcer.seconds())
        elif restarts(self.config, timeline, self.job.train.count, where, self.steering) and not self.end_period():
            self.rule.restart()
        if change.execution != self.learners.execution:
            self.learners.change(self.replicas.count, change.execution)  # averaging goes on
            self.reporter.executed(self.where, time.perf_counter() - begin + self.announcer.seconds())

    def tasks(self, slots: list[Slot]) -> list[Task]:
        """The tasks of the learners' threads: one slot each."""
        self.replicas.weighed = self.rule.alike
        return self.learners.tasks(slots)

    def receive(self) -> None:
        """Ends the exchange under way, if any. The centre may be out of date until `settle`."""
        self._heed(self.synchroniser.receive())

    def settle(self) -> None:
        """As `receive`, and the centre is up to date: to be read, or changed."""
        self._heed(self.synchroniser.settle())

    def read_centre(self) -> None:
        """As `settle`, by all ranks: a centre that does not follow its replicas is up to date, too."""
        self.settle()
        if not self.rule.follows and (found := self.synchroniser.agree(sum(self.counts))).mismatches:
            self.reporter.agreed(self.where, found)

    def end_period(self) -> bool:
        """As `settle`, and averaging restarts if steps waited for the end of their period: they are exchanged first."""
        self.settle()
        last = max(self.iteration - 1, self.coordinator.timeline().changes[0].iteration)
        rate = rate_of(self.config, self._where(last), self.steering)
        return self.synchroniser.end_period(self.stepping.at(rate, self.config.batch_size))

    def _heed(self, tally: Tally | None) -> None:
        self._gain = gain_of(self.rule)  # which changes while an exchange is under way
        if tally is not None:
            self.requests.asked = self.requests.asked or tally.attention > 0
            self.ledger.heard(tally.loss, tally.hits, self._untold)
            self._untold = 0

    def check(self, found: Sequence[Result | None], rate: float) -> list[Result]:
        """The finite results. A learner whose loss or gradient is not is reset, or ends the run (`on_nan`)."""
        return self.resets.check(found, rate, self.iteration, sum(self.counts[: self.rank]), self._saver.last)

    def tally(self, results: list[Result], signal: str) -> Tally:
        """The sums that this rank sends to the others beside its steps."""
        loss, hits = sum(result.loss for result in results), sum(result.hits for result in results)
        return Tally(self.requests.now(signal).attention, loss, hits)

    def advance(self, rate: float, signal: str) -> str:
        """Ends an iteration: requests, metrics, evaluation, checkpoint where due. The reason to stop now, if any."""
        config, before = self.config, self.position
        self.replicas.stepped(self.stepping.samples)
        self.iteration += 1
        self._pulse.beat("iteration")
        self.ledger.images += self.position - before
        self._untold += self.position - before
        stop, save = "", False
        if self.rank == 0:
            self.reporter.damaged(self.loading.damaged())
        self.reporter.note(self._watch(self.reporter.clock(), self.pipeline.waited))
        if self.requests.asked:  # every rank read this from the same all-reduce
            with self._iteration_times.aside():
                stop, save = self._talk(signal)
        if self.iteration % config.log.every == 0:
            with self._iteration_times.aside():
                found = self.synchroniser.distances() if self.rank == 0 else []
            self.reporter.trained(self.where, rate, self._gain, self.resets.losses, found, self._waits())
        if self.iteration % config.rule.resync == 0:
            self._agree()
        if not stop and self.limit_reached():
            self.end_period()  # the last evaluation is of all steps
        if self.average.due(self.iteration):
            with self._iteration_times.aside():
                self.read_centre()
                self.average.follow(self.job.kernels.flat.host(self.stages.centre), self.position)
        passed = partial(due, before, self.position, self.job.train.count)
        if passed(1.0):
            if self.steering.by_epoch:
                self.settle()  # the epoch's last losses too
            self.reporter.note(self.steering.epoch_ended(self.iteration, self.where.epoch))
        self._owed = self.judge is not None and passed(config.evaluate.every)
        with self._iteration_times.aside():
            best = self._owed and not stop and self.evaluate()
            if save or stop.startswith("SIG") or config.checkpoint.due(self.iteration, best, passed):
                self.save(best)
        self.reporter.show(self.where, self._gain)
        return stop

    def evaluate(self, last: bool = False) -> bool:
        """Evaluates the centre on the data that choose; True if it is the best so far. The `last` steers nothing."""
        assert self.judge is not None
        self._owed = False
        self.read_centre()
        self.reporter.clock()
        best = self.judge.evaluate(self.where, self.stages.centre, self.statistics(), self.average.weights)
        if not last:
            self.reporter.note(self.steering.evaluated(self.iteration, self.where.epoch))
        self._tell()
        return best

    def save(self, best: bool = False) -> None:
        """Writes a checkpoint on all ranks, and removes those that are not to be kept."""
        self.read_centre()
        self.resets.check_centre(self.iteration, self._saver.last)
        self.reporter.clock()
        self._tell(self.resets.tell())
        diverged = any(self.synchroniser.call(lambda comm: comm.share(self.resets.due)))
        header = {
            "counts": self.counts,
            "tuning": self.tuning.state(),
            "ledger": self.ledger.state(),
            "due": [self.requests.asked, diverged, self._owed],
            "untold": self._untold,
            "average": self.average.entry(),
            "metrics_bytes": self.synchroniser.call(lambda comm: comm.share(self.reporter.mark()))[0],
        }
        with self.trace.span("checkpoint", "save"):
            self._saver.save(self.where, header, self.statistics(), best, self.average.weights)

    def finish(self, stop: str) -> Trained:
        """Ends a run at a limit or a request to stop. Returns its result, and on rank 0 writes the summary to disk."""
        exchanged = not stop.startswith("SIG") and self.end_period()
        self.read_centre()
        self.resets.end(self.iteration, sum(self.counts[: self.rank]), self._saver.last)
        self.reporter.clock()
        self._tell(self.resets.tell())
        if not stop.startswith("SIG"):
            late = self.judge is not None and (exchanged or self.ledger.evaluated_at != self.position)
            best = self.evaluate(last=True) if late else False
            unsaved = exchanged or late or not self._saver.has(self.iteration)
            if self.config.checkpoint.interval is not None and unsaved:
                self.save(best)
            if self.judge is not None:
                self.reporter.clock()
                self.judge.test(self.where, self.stages.centre, self.statistics(), self.average.weights)
                self._tell()
        self.reporter.note(self.trace.end(self.synchroniser.call))
        settled = None if (decided := self.tuning.decision) is None else decided.settled
        summary = self.reporter.summary(
            self.where, stop, self._waits(), gain=gain_of(self.rule), checkpoint=self._saver.last, settled=settled
        )
        self.reporter.end(self.where, summary)
        centre, statistics = self.job.kernels.flat.host(self.stages.centre).copy(), self.statistics()
        average = None if self.average.weights is None else named(self.plan, self.average.weights, statistics)
        return Trained(summary, named(self.plan, centre, statistics), self.job.build, average)

    def _talk(self, signal: str) -> tuple[str, bool]:
        """Settles the requests of all ranks. Returns the reason to stop, and whether to save."""
        outcome, tuned = self.requests.settle(signal)
        if outcome.resync:
            self._tell(self.resets.tell())
            self._agree()
            self.resets.due = False
        if outcome.stop:
            self.reporter.note(f"iteration {self.iteration}: {outcome}")
        if tuned is not None:
            self._tune(tuned)
        return outcome.stop, outcome.save

    def _tune(self, decided: Decision) -> None:
        """Announces the learners that were decided on, once every rank has bound its own."""
        tuned = self.announcer.follow(self.tuning, decided, self.iteration)
        self.reporter.tuned(self.where, tuned, self.tuning.basis())
        if tuned.settled and tuned.counts != self._settled and not self.job.device.enqueues:
            self._settled = tuned.counts
            for text in self.synchroniser.call(lambda comm: core_limits(comm, tuned.counts)):
                self.reporter.note(text)

    def _room(self) -> int:
        """The bytes that new learners may take, while exchanges may be under way. Collective."""
        return int(TAKEN * self.synchroniser.call(self.job.device.memory.free))

    def _agree(self) -> None:
        self.settle()
        with self.trace.span("synchronisation", "agree"):
            found = self.synchroniser.agree(sum(self.counts))
        self.reporter.agreed(self.where, found)

    @property
    def position(self) -> int:
        """Samples consumed so far, over all ranks and epochs."""
        return self.coordinator.timeline().position(self.iteration)

    @property
    def where(self) -> Where:
        return self._where(self.iteration)

    def _where(self, iteration: int) -> Where:
        position = self.coordinator.timeline().position(iteration)
        return Where(iteration, position, position / self.job.train.count, self.counts, self.learners.execution)

    def change_learners(self, counts: Counts, execution: str) -> None:
        """Changes replicas, learners and rule to `counts` by rank; new learners begin with the centre's statistics."""
        statistics = self.statistics()
        self.counts = counts
        self.learners.change(counts[self.rank], execution, statistics)
        self.rule.begin(sum(counts))

    def statistics(self) -> Array:
        """The centre's statistics: the mean over all learners."""
        return self.stages.state.statistics(self.synchroniser.call, sum(self.counts))

    def _waits(self) -> dict[str, float]:
        waited, busy = self.synchroniser.seconds()
        return {"data_wait": self.pipeline.waited, "sync_wait": waited, "sync_busy": busy}
