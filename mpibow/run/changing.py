"""Changes between two iterations, on all ranks alike: weights trained, rule, learners, execution, averaging anew."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mpibow.comm.binding import core_limits
from mpibow.errors import CommunicationError
from mpibow.graph import Span
from mpibow.job import Job
from mpibow.job.memory import TAKEN
from mpibow.optim.groups import frozen_for
from mpibow.sync.agreement import mean_over_ranks
from mpibow.system.command import some
from mpibow.tune import Decision, as_sum

from .steering import in_force

if TYPE_CHECKING:
    from mpibow.data import Timeline

    from .session import Session
    from .steering import Where


def change(session: Session) -> None:
    """Makes the changes that begin at this iteration."""
    timeline = session.coordinator.timeline()
    begin = time.perf_counter()
    config = session.config
    now = timeline.change(session.iteration)
    where = session.where
    count = session.job.train.count
    if _reached(session):
        session.settle()
        session.reporter.note(_train_more(session))
    switch = in_force(config, timeline, count, where.iteration) is not config.averaging.at(where.epoch)
    if switch or now.counts != session.counts:
        session.end_period()
        session.read_centre()  # with which the other rule and new learners begin
    if switch:
        session.reporter.note(_switch_rule(session))
    if now.counts != session.counts:
        session.resets.check([], config.update.lr)  # late results belong to learners that may go now
        session.change_learners(now.counts, now.execution)
        session.ledger.changes += 1
        _changed(session, "learners", begin)
    elif _restarts(session, timeline, where) and not session.end_period():
        session.engine.restart()
    if now.execution != session.learners.execution:
        session.learners.change(session.replicas.count, now.execution)  # averaging goes on
        _changed(session, "execution", begin)


def _changed(session: Session, what: str, begin: float) -> None:
    """Reports the change: it took the time since `begin`, and that in which its learners were bound."""
    session.reporter.changed(what, time.perf_counter() - begin + session.binding_seconds)
    session.binding_seconds = 0.0


def _restarts(session: Session, timeline: Timeline, where: Where) -> bool:
    """Whether the rule restarts averaging before this iteration."""
    config = session.config
    if where.iteration <= timeline.changes[0].iteration:
        return False
    before = timeline.position(where.iteration - 1) / session.job.train.count
    drops = config.schedule.drops(before, where.epoch) or session.steering.drops(where.iteration)
    return config.averaging.at(before).restarts(before, where.epoch, drops)


def tune(session: Session, tuned: Decision) -> None:
    """Announces the learners that were decided on, once every rank has bound its own.

    Where a rank can't have them it is decided anew; the learners that there are stay.
    """
    begin = time.perf_counter()
    coordinator = session.coordinator
    tuning = session.tuning
    reporter = session.reporter
    with session.comm.pulse.during("start"):  # a GPU may try plans for minutes
        while (lack := _lack(session, tuned)) is not None:
            short, why = lack
            if tuned.execution:
                tuned = tuning.refused(f"rank {short}: {why}")
                continue
            reporter.no_memory(short, tuned.counts[short], why)
            if tuned.counts[short] <= coordinator.announced[short]:  # fused learners are bound anew, fewer as well
                tuned = tuning.stay(coordinator.announced, f"rank {short}: {why}")
                break
            tuned = tuning.without(short, tuned.counts[short])
    wanted = tuned.counts, tuned.execution or coordinator.execution
    if wanted != (coordinator.announced, coordinator.execution):
        coordinator.announce(session.iteration, *wanted)
        session.binding_seconds += time.perf_counter() - begin  # a check that changes nothing does not count
    reporter.tuned(tuned, tuning.basis())
    if tuned.settled and tuned.counts != session.cores_checked and not session.job.device.enqueues:
        session.cores_checked = tuned.counts
        for text in session.synchroniser.call(lambda comm: core_limits(comm, tuned.counts)):
            reporter.note(text)


def _lack(session: Session, tuned: Decision) -> tuple[int, str] | None:
    """The first rank that can't have its learners, and why; None where every rank has bound its own.

    Ranks also compare their decisions, so it is called for decisions that change nothing, too. Raises
    CommunicationError where decisions differ.
    """

    def room() -> int:  # that new learners may take, while exchanges may be under way
        return int(TAKEN * session.synchroniser.call(session.job.device.memory.free))

    execution = tuned.execution or session.coordinator.execution
    own = session.learners.bind_within(room, tuned.counts[session.rank], execution)
    found = session.synchroniser.talk((f"{as_sum(tuned.counts)} {tuned.execution}".strip(), tuned.counts, own))
    for rank, (wanted, counts, _) in enumerate(found):
        if (wanted, counts) != found[0][:2]:
            raise CommunicationError(
                f"rank {rank}: decided on learners {wanted}, rank 0 on {found[0][0]}, from the same times; start "
                "all ranks with the same Python and mpibow"
            )
    return next(((rank, why) for rank, (*_, why) in enumerate(found) if why is not None), None)


def _switch_rule(session: Session) -> str:
    """Switches to the rule behind the present one, from its settled centre. Returns a line for the log.

    Where it moves all replicas by one step, the optimiser keeps the mean of their states.
    """
    replicas = session.replicas
    where = session.where
    settings = session.config.averaging.at(where.epoch)
    call = session.synchroniser.call
    flat = session.state.flat
    if settings.alike:
        for state in replicas.trained.states:
            flat.put(state, mean_over_ranks(call, state, flat, sum(where.learners)))
        own = [replicas.updates.max(axis=0).tolist(), replicas.seen.max(axis=0).tolist()]
        replicas.updates[:], replicas.seen[:] = np.max(call(lambda comm: comm.share(own)), axis=0)
    session.engine.switch(settings)
    return f"iteration {where.iteration}: rule {settings.name}"


def _reached(session: Session) -> bool:
    """Whether more weights are to be trained now."""
    return bool(session.stages) and session.stages[0][0] <= session.where.epoch


def _train_more(session: Session) -> str:
    """Trains them on all learners; returns a line for the log. Averaging goes on. Nothing may be under way."""
    before = session.replicas.size
    epoch = session.where.epoch
    while _reached(session):
        _, size = session.stages.pop(0)
    session.state.grow(size, sum(session.counts))
    plan = session.job.training_plan(epoch)
    session.learners.replan(plan)
    session.state = replace(session.state, plan=plan)
    spans = [span for span in plan.layout.spans if before <= span.offset < size]
    return f"epoch {epoch:.2f}: {_listed(spans)} are trained from here on"


def frozen_lines(job: Job, epoch: float) -> list[str]:
    """Lines of the weights that are frozen at `epoch`, one for each length of time, and of those without a loss."""
    found = dict[tuple[float, str], list[Span]]()
    for span in job.layout.spans:
        length = frozen_for(job.config.update.groups, span.name)
        text = "" if math.isinf(length) else f" until epoch {length:g}"
        if not span.weight.trained:
            length = math.inf
            text = ", as no loss depends on them"
        if length > epoch:
            found.setdefault((length, text), []).append(span)
    return [f"frozen{text}: {_listed(spans)}" for (_, text), spans in sorted(found.items())]


def _listed(spans: Sequence[Span]) -> str:
    count = sum(math.prod(span.shape) for span in spans)
    return f"{count:,} weights ({some([span.name for span in spans])})"
