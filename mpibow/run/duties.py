"""The duties of a rank between two iterations. Their order decides bits, and which collective comes first on all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .changing import tune
from .coordinator import settle_requests
from .evaluate import due

if TYPE_CHECKING:
    from .session import Session


@dataclass
class IterationEnd:
    """The iteration that has just ended, at `rate`: it consumed samples `begin` up to `position` of the stream."""

    session: Session
    rate: float
    signal: str  # the first that this rank received
    begin: int
    position: int
    stop: str = ""  # the reason to end the run now
    save: bool = False  # whether a rank has asked for a checkpoint
    best: bool = False  # whether the centre was evaluated, and is the best so far

    def every(self, iterations: int) -> bool:
        return self.session.iteration % iterations == 0

    def passed(self, epochs: float) -> bool:
        """Whether the iteration passed a multiple of so many epochs."""
        return due(self.begin, self.position, self.session.job.train.count, epochs)


@dataclass(frozen=True)
class Duty:
    """`do` where it is `due`, on all ranks alike. `aside`: its time is no part of an iteration to the tuner."""

    due: Callable[[IterationEnd], bool]
    do: Callable[[IterationEnd], object]
    aside: bool = False


def perform(end: IterationEnd) -> str:
    """Performs all duties that are due. Returns the reason to stop now, '' if none."""
    times = end.session.iteration_times
    for duty in DUTIES:
        if duty.due(end):
            with times.aside() if duty.aside else nullcontext():
                duty.do(end)
    return end.stop


def _watch_waits(end: IterationEnd) -> None:
    """Notes that samples are damaged, that learners wait for data or other ranks; and the number of buckets."""
    session = end.session
    reporter = end.session.reporter
    if session.rank == 0:
        reporter.damaged(session.loading.damaged())
    reporter.note(session.watch(reporter.clock(), session.pipeline.waited))
    if (ahead := session.synchroniser.ahead) is not None:
        reporter.note(ahead.news())
    reporter.note(session.watch_ranks(reporter.clock(), session.synchroniser.seconds()[0]))


def _talk(end: IterationEnd) -> None:
    """Settles the requests of all ranks: to stop, to save, to agree after a reset, to decide on learners."""
    session = end.session
    tuning = end.session.tuning
    requests = session.synchroniser.talk(replace(session.request(end.signal), reading=tuning.reading()))
    together, rank = settle_requests(requests)
    session.talk_due = False
    end.stop = together.stop
    end.save = together.save
    if end.save:
        session.saver.agreed()
    decision = tuning.conclude([request.reading for request in requests])
    if together.resync:
        session.reporter.tell(session.resets.tell())
        session.agree()
        session.resets.due = False
    if end.stop:
        where = f" on rank {rank}" * end.stop.startswith("SIG")  # that received the signal
        session.reporter.note(f"iteration {session.iteration}: {end.stop}{where}")
    if decision is not None:
        tune(session, decision)


def _report(end: IterationEnd) -> None:
    session = end.session
    with session.iteration_times.aside():
        distances = session.synchroniser.distances() if session.rank == 0 else []
    session.reporter.trained(end.rate, distances)


def _average(end: IterationEnd) -> None:
    session = end.session
    session.read_centre()
    session.average.follow(session.job.kernels.flat.host(session.state.centre), end.position)


def _end_epoch(end: IterationEnd) -> None:
    session = end.session
    steering = end.session.steering
    if steering.by_epoch:
        session.settle()  # the epoch's last losses too
    session.reporter.note(steering.epoch_ended(session.iteration, session.where.epoch))


def _evaluate(end: IterationEnd) -> None:
    end.best = end.session.evaluate()


def _save_is_due(end: IterationEnd) -> bool:
    session = end.session
    interval = session.config.checkpoint.due(session.iteration, end.best, end.passed)
    return end.save or end.stop.startswith("SIG") or interval


DUTIES = (
    Duty(lambda end: True, _watch_waits),
    Duty(lambda end: end.session.talk_due, _talk, aside=True),
    Duty(lambda end: end.every(end.session.config.log.every), _report),
    Duty(lambda end: end.every(end.session.config.rule.resync), lambda end: end.session.agree()),
    # The last evaluation is of all steps
    Duty(lambda end: not end.stop and bool(end.session.limit_reached()), lambda end: end.session.end_period()),
    Duty(lambda end: end.session.average.due(end.session.iteration), _average, aside=True),
    Duty(lambda end: end.passed(1.0), _end_epoch),
    Duty(lambda end: not end.stop and end.session.evaluation_due, _evaluate, aside=True),
    Duty(_save_is_due, lambda end: end.session.save(), aside=True),
    Duty(lambda end: True, lambda end: end.session.reporter.show()),
)
