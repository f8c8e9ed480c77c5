"""A session: the work in and between the iterations of a run, on the parts that opening.py makes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from mpibow.comm.communicator import Communicator
from mpibow.data.slots import Slot
from mpibow.data.wait import Watch
from mpibow.graph.graph import Array
from mpibow.job import Job
from mpibow.job.measures import directions
from mpibow.kernels.passes import Local
from mpibow.learn.learner import Result, Task
from mpibow.run.coordinator import Request, settle_requests
from mpibow.run.evaluate import due
from mpibow.run.iteration_times import IterationTimes
from mpibow.run.state import named
from mpibow.run.steering import Steering
from mpibow.session.average import average_of
from mpibow.session.changing import change, tune
from mpibow.session.judge import Judge
from mpibow.session.opening import OpenParts, Parts, open_parts, open_pipeline
from mpibow.session.rates import rate_of
from mpibow.session.reporter import Reporter
from mpibow.session.resets import Resets
from mpibow.session.saving import Saver
from mpibow.session.summary import Trained
from mpibow.session.where import Where
from mpibow.sync.engine import gain_of
from mpibow.sync.synchroniser import Tally
from mpibow.trace import SILENT, Trace
from mpibow.tune import Counts


class Session(Parts):
    """Every rank makes one in a `with`, and calls the same methods in the same order; `made` makes its parts."""

    def __init__(
        self, job: Job, comm: Communicator, resume: str | None = None, note: str = "", trace: Trace = SILENT,
        made: OpenParts = open_parts,
    ) -> None:  # fmt: skip
        with ExitStack() as stack:
            super().__init__(**vars(made(job, comm, resume, note, trace, stack)))
            start, self.reporter = self.start, Reporter(self)
            stack.callback(self.reporter.close)
            self.iteration, self.counts = start.iteration, start.learners[0]
            self.asked, _, self.owed = start.due  # to talk, as all ranks read in the same all-reduce; to evaluate
            self.untold = start.kept.untold if start.kept else 0  # samples whose losses were not sent yet
            self.bound = 0.0  # seconds that binding coming learners took
            self.gain = gain_of(self.rule)
            self.stages = [stage for stage in self.job.stages if stage[1] > self.replicas.size]  # still to come
            self.average, self.saver = average_of(self.config.ema, start, self.plan), Saver(self)
            self.resets, self.judge = Resets(self), None if self.evaluator is None else Judge(self, self.evaluator)
            self.steering = Steering(self.config.stop, self.config.schedule, self.ledger, directions(self.job.measures))
            self._iteration_times = IterationTimes(lambda: self.synchroniser.seconds()[0])
            self._watch, self.settled = Watch(self.loading.remedy), Counts()
            self.reporter.start()
            if (decided := self.tuning.decision) and decided.counts != self.coordinator.announced:
                tune(self, decided)  # memory or tuner.most may have changed
            self.pipeline = open_pipeline(self, stack, self.reporter.note)
            self.reporter.pause()
            if self.owed and self.evaluate() and self.config.checkpoint.interval and self.config.checkpoint.best:
                self.save(best=True)
            self._stack = stack.pop_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

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
            change(self)
        samples = self.config.batch_size * (sum(self.counts) if self.rule.alike else 1)  # of an update of states
        return self.stepping.at(rate_of(self.config, self.where, self.steering), samples)

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
            self.reporter.agreed(found)

    def end_period(self) -> bool:
        """As `settle`, and averaging restarts if steps waited for the end of their period: they are exchanged first."""
        self.settle()
        last = max(self.iteration - 1, self.coordinator.timeline().changes[0].iteration)
        rate = rate_of(self.config, self._where(last), self.steering)
        return self.synchroniser.end_period(self.stepping.at(rate, self.config.batch_size))

    def _heed(self, tally: Tally | None) -> None:
        self.gain = gain_of(self.rule)  # which changes while an exchange is under way
        if tally is not None:
            self.asked = self.asked or tally.attention > 0
            self.ledger.heard(tally.loss, tally.hits, self.untold)
            self.untold = 0

    def check(self, found: Sequence[Result | None], rate: float) -> list[Result]:
        """The finite results. A learner whose loss or gradient is not is reset, or ends the run (`on_nan`)."""
        return self.resets.check(found, rate)

    def tally(self, results: list[Result], signal: str) -> Tally:
        """The sums that this rank sends to the others beside its steps."""
        loss, hits = sum(result.loss for result in results), sum(result.hits for result in results)
        return Tally(self._request(signal).attention, loss, hits)

    def _request(self, signal: str) -> Request:
        """This rank's requests now, on rank 0 with those of its clock."""
        stop = signal or self.reporter.stop
        if self.rank == 0:
            stop = stop or self.config.stop.overdue(self.reporter.clock())
        return Request(stop, self.saver.overdue(), self.resets.due, self.tuning.asks)

    def advance(self, rate: float, signal: str) -> str:
        """Ends an iteration: requests, metrics, evaluation, checkpoint where due. The reason to stop now, if any."""
        config, before = self.config, self.position
        self.replicas.stepped(self.stepping.samples)
        self.iteration += 1
        self.comm.pulse.beat("iteration")
        self.ledger.images += self.position - before
        self.untold += self.position - before
        stop, save = "", False
        if self.rank == 0:
            self.reporter.damaged(self.loading.damaged())
        self.reporter.note(self._watch(self.reporter.clock(), self.pipeline.waited))
        if self.asked:
            with self._iteration_times.aside():
                stop, save = self._talk(signal)
        if self.iteration % config.log.every == 0:
            with self._iteration_times.aside():
                found = self.synchroniser.distances() if self.rank == 0 else []
            self.reporter.trained(rate, found)
        if self.iteration % config.rule.resync == 0:
            self._agree()
        if not stop and self.limit_reached():
            self.end_period()  # the last evaluation is of all steps
        if self.average.due(self.iteration):
            with self._iteration_times.aside():
                self.read_centre()
                self.average.follow(self.job.kernels.flat.host(self.state.centre), self.position)
        passed = partial(due, before, self.position, self.job.train.count)
        if passed(1.0):
            if self.steering.by_epoch:
                self.settle()  # the epoch's last losses too
            self.reporter.note(self.steering.epoch_ended(self.iteration, self.where.epoch))
        self.owed = self.judge is not None and passed(config.evaluate.every)
        with self._iteration_times.aside():
            best = self.owed and not stop and self.evaluate()
            if save or stop.startswith("SIG") or config.checkpoint.due(self.iteration, best, passed):
                self.save(best)
        self.reporter.show()
        return stop

    def evaluate(self, last: bool = False) -> bool:
        """Evaluates the centre on the data that choose; True if it is the best so far. The `last` steers nothing."""
        assert self.judge is not None
        self.owed = False
        self.read_centre()
        self.reporter.clock()
        best = self.judge.evaluate()
        if not last:
            self.reporter.note(self.steering.evaluated(self.iteration, self.where.epoch))
        self.reporter.tell()
        return best

    def save(self, best: bool = False) -> None:
        """Writes a checkpoint on all ranks, and removes those that are not to be kept."""
        self.read_centre()
        self.resets.check_centre()
        self.reporter.clock()
        self.reporter.tell(self.resets.tell())
        self.saver.save(best)

    def finish(self, stop: str) -> Trained:
        """Ends a run at a limit or a request to stop. Returns its result, and on rank 0 writes the summary to disk."""
        exchanged = not stop.startswith("SIG") and self.end_period()
        self.read_centre()
        self.resets.end()
        self.reporter.clock()
        self.reporter.tell(self.resets.tell())
        if not stop.startswith("SIG"):
            late = self.judge is not None and (exchanged or self.ledger.evaluated_at != self.position)
            best = self.evaluate(last=True) if late else False
            unsaved = exchanged or late or not self.saver.has(self.iteration)
            if self.config.checkpoint.interval is not None and unsaved:
                self.save(best)
            if self.judge is not None:
                self.reporter.clock()
                self.judge.test()
                self.reporter.tell()
        self.reporter.note(self.trace.end(self.synchroniser.call))
        summary = self.reporter.summary(stop)
        self.reporter.end(summary)
        centre, statistics = self.job.kernels.flat.host(self.state.centre).copy(), self.statistics()
        average = None if self.average.weights is None else named(self.plan, self.average.weights, statistics)
        return Trained(summary, named(self.plan, centre, statistics), self.job.build, average)

    def _talk(self, signal: str) -> tuple[str, bool]:
        """Settles the requests of all ranks. Returns the reason to stop, and whether to save."""
        requests = self.synchroniser.talk(replace(self._request(signal), reading=self.tuning.reading()))
        outcome, self.asked = settle_requests(requests), False
        if outcome.save:
            self.saver.agreed()
        tuned = self.tuning.conclude([request.reading for request in requests])
        if outcome.resync:
            self.reporter.tell(self.resets.tell())
            self._agree()
            self.resets.due = False
        if outcome.stop:
            self.reporter.note(f"iteration {self.iteration}: {outcome}")
        if tuned is not None:
            tune(self, tuned)
        return outcome.stop, outcome.save

    def _agree(self) -> None:
        self.settle()
        with self.trace.span("synchronisation", "agree"):
            found = self.synchroniser.agree(sum(self.counts))
        self.reporter.agreed(found)

    def change_learners(self, counts: Counts, execution: str) -> None:
        """Changes replicas, learners and rule to `counts` by rank; new learners begin with the centre's statistics."""
        statistics = self.statistics()
        self.counts = counts
        self.learners.change(counts[self.rank], execution, statistics)
        self.rule.begin(sum(counts))

    def statistics(self) -> Array:
        """The centre's statistics: the mean over all learners."""
        return self.state.statistics(self.synchroniser.call, sum(self.counts))

    def waits(self) -> dict[str, float]:
        """Seconds by name, as entries have them."""
        waited, busy = self.synchroniser.seconds()
        return {"data_wait": self.pipeline.waited, "sync_wait": waited, "sync_busy": busy}
