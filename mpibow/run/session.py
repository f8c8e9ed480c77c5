"""A session: the work in and between the iterations of a run, on the parts that opening.py makes."""

from __future__ import annotations

from contextlib import ExitStack

from mpibow.comm import Communicator
from mpibow.data import Slot
from mpibow.data.loading import Watch
from mpibow.graph import Array
from mpibow.job import Job
from mpibow.job.measures import directions
from mpibow.kernels import Local
from mpibow.learn.learners import Result
from mpibow.learn.scheduler import Task
from mpibow.sync import gain_of
from mpibow.sync.agreement import Agreement, agree
from mpibow.sync.outbox import REQUEST, Tally
from mpibow.trace import SILENT, Trace
from mpibow.tune import Counts

from .average import Average, average_of
from .changing import change, tune
from .coordinator import Request
from .duties import IterationEnd, perform
from .evaluate import due
from .judge import Judge
from .opening import OpenParts, Parts, open_parts, open_pipeline
from .reporter import Reporter
from .resets import Resets
from .results import Trained
from .saving import Saver
from .steering import Steering, Where, rate_of
from .tuning import IterationTimes
from .waits import Waits

MOST_FOR_RANKS = 0.2  # of the time may be spent waiting for other ranks
REMEDY = (
    "exchange less often (rule.period, rule.name=local_sgd), or more samples at once (batch_size, learners); "
    "slower ranks are waited for, too"
)


class Session(Parts):
    """Every rank makes one in a `with`, and calls the same methods in the same order; `opened` makes its parts."""

    iteration: int
    talk_due: bool  # as all ranks read in the same all-reduce
    average: Average
    reporter: Reporter

    def __init__(
        self,
        job: Job,
        comm: Communicator,
        resume: str | None = None,
        note: str = "",
        trace: Trace = SILENT,
        opened: OpenParts = open_parts,
    ):
        with ExitStack() as stack:
            super().__init__(**vars(opened(job, comm, resume, note, trace, stack)))
            start = self.start
            config = self.config
            self.reporter = Reporter(self)
            stack.callback(self.reporter.close)
            self.iteration = start.iteration
            self.counts = start.learners[0]
            self.talk_due, _, evaluation_due = start.due
            self.gain = gain_of(self.engine)
            self.stages = [stage for stage in self.job.stages if stage[1] > self.replicas.size]  # still to come
            self.binding_seconds = 0.0  # of learners that are still to come
            self.cores_checked = Counts()  # for these learners
            self.average = average_of(config.ema, start, self.plan)
            self.saver = Saver(self)
            self.resets = Resets(self)
            self.judge = None if self.evaluator is None else Judge(self, self.evaluator)
            self.steering = Steering(config.stop, config.schedule, self.ledger, directions(self.job.measures))
            self.iteration_times = IterationTimes(lambda: self.synchroniser.seconds()[0])
            self.watch = Watch("data", self.loading.remedy)
            self.watch_ranks = Watch("other ranks", REMEDY, MOST_FOR_RANKS)
            self.reporter.start()
            if (decision := self.tuning.decision) and decision.counts != self.coordinator.announced:
                tune(self, decision)  # memory or tuner.most may have changed
            self.pipeline = open_pipeline(self, stack, self.reporter.note)
            self.reporter.pause()
            if evaluation_due and self.evaluate() and config.checkpoint.interval and config.checkpoint.best:
                self.save()
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
        ledger = self.ledger
        return self.config.stop.reached(
            self.iteration,
            self.position,
            self.job.train.count,
            accurate=ledger.epochs_to_target is not None,
            watched=ledger.watched,
        )

    def prepare(self) -> Local:
        """This iteration's local step; averaging starts again where learners change or the rate drops."""
        lap = self.iteration_times.lap()  # of the iteration before
        if lap is not None and self.learners.execution == self.coordinator.execution:  # a change takes a while to come
            self.tuning.measured(*lap, self.counts)
        with self.iteration_times.aside():
            self.reporter.note(self.trace.begin(self.iteration, self.synchroniser.call))
            change(self)
        samples = self.config.batch_size * (sum(self.counts) if self.engine.alike else 1)  # of an update of states
        return self.stepping.at(rate_of(self.config, self.where, self.steering), samples)

    def tasks(self, slots: list[Slot]) -> list[Task]:
        """The tasks of the learners' threads: one slot each."""
        self.replicas.weighed = self.engine.alike
        return self.learners.tasks(slots)

    def receive(self) -> None:
        """Ends the exchange under way, if any. The centre may be out of date until `settle`."""
        self._enter(self.synchroniser.receive())

    def settle(self) -> None:
        """As `receive`, and the centre is up to date: to be read, or changed."""
        self._enter(self.synchroniser.settle())

    def _enter(self, tally: Tally | None) -> None:
        self.gain = gain_of(self.engine)  # which changes while an exchange is under way
        if tally is not None:
            self.talk_due = self.talk_due or tally.attention > 0
            self.ledger.heard(tally.loss, tally.hits, int(tally.attention) * self.config.batch_size)

    def read_centre(self) -> None:
        """As `settle`, by all ranks: a centre that does not follow its replicas is up to date, too."""
        self.settle()
        if not self.engine.follows and (agreement := self._agree()).mismatches:
            self.reporter.agreed(agreement)

    def end_period(self) -> bool:
        """As `settle`, and averaging restarts if steps waited for the end of their period: they are exchanged first."""
        self.settle()
        last = max(self.iteration - 1, self.coordinator.timeline().changes[0].iteration)
        rate = rate_of(self.config, self._where(last), self.steering)
        return self.synchroniser.end_period(self.stepping.at(rate, self.config.batch_size))

    def agree(self) -> None:
        """Sets the centre to the replicas' true mean, the same on all ranks."""
        self.settle()
        with self.trace.span("synchronisation", "agree"):
            agreement = self._agree()
        self.reporter.agreed(agreement)

    def _agree(self) -> Agreement:
        return agree(self.synchroniser.call, self.engine, self.replicas, self.state.flat, sum(self.counts))

    def tally(self, results: list[Result], signal: str) -> Tally:
        """The sums that this rank sends to the others beside its steps."""
        left_out = self.resets.left_out + REQUEST * self.request(signal).attention
        return Tally(left_out, sum(result.loss for result in results), sum(result.hits for result in results))

    def request(self, signal: str) -> Request:
        """This rank's requests now, on rank 0 with those of its clock."""
        stop = signal or self.reporter.callbacks.stop
        if self.rank == 0:
            stop = stop or self.config.stop.overdue(self.reporter.clock())
        return Request(stop, self.saver.overdue(), self.resets.due, self.tuning.asks)

    def advance(self, rate: float, signal: str) -> str:
        """Ends an iteration, and performs the duties that are due (duties.py). The reason to stop now, if any."""
        begin = self.position
        self.replicas.stepped(self.stepping.samples)
        self.iteration += 1
        self.comm.pulse.beat("iteration")
        self.ledger.stepped(self.position - begin)
        return perform(IterationEnd(self, rate, signal, begin, self.position))

    @property
    def evaluation_due(self) -> bool:
        """Whether the last iteration made an evaluation due that was not made yet."""
        position = self.position
        every = self.config.evaluate.every
        if self.judge is None or self.ledger.evaluated_at == position:
            return False
        return due(self.coordinator.timeline().position(self.iteration - 1), position, self.job.train.count, every)

    def evaluate(self, last: bool = False) -> bool:
        """Evaluates the centre on the data that choose; True if it is the best so far. The `last` steers nothing."""
        assert self.judge is not None
        self.read_centre()
        self.reporter.clock()
        best = self.judge.evaluate()
        if not last:
            self.reporter.note(self.steering.evaluated(self.iteration, self.where.epoch))
        self.reporter.tell()
        return best

    def save(self) -> None:
        """Writes a checkpoint on all ranks, and removes those that are not to be kept."""
        self.read_centre()
        self.resets.check_centre()
        self.reporter.clock()
        self.reporter.tell(self.resets.tell())
        self.saver.save()

    def finish(self, stop: str) -> Trained:
        """Ends a run at a limit or a request to stop. Returns its result, and on rank 0 writes the summary to disk."""
        signal = stop.startswith("SIG")
        exchanged = not signal and self.end_period()
        self.read_centre()
        self.resets.end()
        self.reporter.clock()
        self.reporter.tell(self.resets.tell())
        if not signal:
            late = self.judge is not None and (exchanged or self.ledger.evaluated_at != self.position)
            if late:
                self.evaluate(last=True)
            unsaved = exchanged or late or not self.saver.has(self.iteration)
            if (self.config.checkpoint.interval or self.saver.last) and unsaved:  # older weights must not be the newest
                self.save()
            if self.judge is not None:
                self.reporter.clock()
                self.judge.test()
                self.reporter.tell()
        self.reporter.note(self.trace.end(self.synchroniser.call))
        summary = self.reporter.end(stop)
        centre = self.job.kernels.flat.host(self.state.centre).copy()
        statistics = self.statistics()
        average = self.average.weights
        named = None if average is None else self.plan.unpacked(average, statistics)
        return Trained(summary, self.plan.unpacked(centre, statistics), self.job.build, named)

    def change_learners(self, counts: Counts, execution: str) -> None:
        """Changes replicas, learners and rule to `counts` by rank; new learners begin with the centre's statistics."""
        statistics = self.statistics()
        self.counts = counts
        self.learners.change(counts[self.rank], execution, statistics)
        self.engine.begin(sum(counts))

    def statistics(self) -> Array:
        """The centre's statistics: the mean over all learners."""
        return self.state.statistics(self.synchroniser.call, sum(self.counts))

    def waits(self) -> Waits:
        return Waits(self.pipeline.waited, *self.synchroniser.seconds())
