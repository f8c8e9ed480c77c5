"""The output of `train --check`: settings, data, the plan step by step, and the memory that every rank takes."""

import math
from collections.abc import Sequence

from mpibow.comm import Communicator
from mpibow.comm.launch import say
from mpibow.data.loading import ReadAheadMemory
from mpibow.data.pipeline_choice import MIB, PipelineChoice, choose
from mpibow.graph import Plan
from mpibow.job import Job, on_device
from mpibow.job.checks import described, poor_fits
from mpibow.job.memory import copy_bytes, learner_bytes, replica_bytes, room_for
from mpibow.learn import directions
from mpibow.learn.local import arrays_of, kept_of
from mpibow.sync import caps
from mpibow.system import in_words
from mpibow.tune import Counts
from mpibow.tune.words import LISTED

from .changing import frozen_lines
from .first_lines import data_lines
from .loggers import check_loggers
from .opening import loading_of
from .stored import taken_by

AVERAGING = 5  # flat arrays, whatever the number of learners


def check_job(job: Job, comm: Communicator, counts: Counts) -> None:
    """Rank 0 prints `describe_job` of `counts` learners by rank, as they would begin here. Collective."""
    check_loggers(job.config.log.to)
    job, told = on_device(job, comm)
    memory = job.device.memory
    free = comm.share(memory.free(comm))
    facts = comm.share(memory.facts(comm))
    if comm.rank == 0:
        if told:
            say(told)
        assert job.config.data is not None
        print(describe_job(job, counts, free, choose(job.config.data.pipeline, job.train, facts)))


def describe_job(
    job: Job,
    counts: Counts,
    free: Sequence[int],
    choice: PipelineChoice = PipelineChoice("host", ""),  # noqa: B008
) -> str:
    """Settings, data, the plan step by step, and the memory that ranks will take, those that have the least first.

    `counts` are the learners to begin with, `free` the bytes that are each rank's share of its node's or GPU's memory,
    `choice` is the way of reading data.
    """
    plan = job.training_plan()
    ahead = job.device.memory.held(loading_of(job, choice, 1))
    sets = {"train": job.train, **job.evaluated}
    taken = taken_by(job, plan)
    scarce = sorted(range(len(counts)), key=lambda rank: free[rank] / counts[rank])
    return "\n".join(
        [
            job.config.text.rstrip(),
            "",
            *(f"{name}: {found.count:,} samples {described(found)}" for name, found in sets.items()),
            *data_lines(job)[1:],
            *frozen_lines(job, 0.0),
            *([taken.told] if taken else []),
            "",
            str(plan),
            *filter(None, [job.slow(), directions.described(job.matrices, job.config.update), *poor_fits(job, counts)]),
            "",
            *(_memory(job, plan, ahead, rank, counts, free[rank]) for rank in scarce[:LISTED]),
            *[f"... and {len(scarce) - LISTED:,} more ranks with more for each"] * (len(scarce) > LISTED),
        ]
    )


def _memory(job: Job, plan: Plan, ahead: ReadAheadMemory, rank: int, counts: Counts, free: int) -> str:
    """The memory that `rank` takes of its `free` bytes."""
    config = job.config
    k = counts[rank]
    weight = 8 if config.precision == "float64" else 4
    parts = kept_of(config.update, plan.layout, job.trained(math.inf))
    states = list(dict.fromkeys(name for part in parts for name in part.states))
    arrays = arrays_of(parts, plan.layout)
    auto = config.learners == "auto"
    averaging = AVERAGING * weight * job.layout.size
    one = config.averaging.one_copy and not job.device.enqueues
    copy = copy_bytes(plan, arrays) if one else 0
    replica = replica_bytes(plan, arrays) - copy
    total = k * (plan.arena_bytes + replica + ahead.learner) + copy + averaging + ahead.data
    names = "gradients" if one else _and("weights", "gradients", *states)
    shared = f" + one copy of {_and('weights', *states)} {_mib(copy)}" if one else ""
    learner = learner_bytes(plan, job.evaluation_plan() if job.evaluated else None, ahead.learner, arrays, one)
    limits = caps(config.averaging, len(counts), job.train.count // config.batch_size)
    most = min([config.tuner.most, *(cap.most for cap in limits)])
    room = room_for(free - ahead.data, learner, most)
    data = f" + data {_mib(ahead.data)}" if ahead.data else ""
    locked = f", and {in_words(k * ahead.locked)} of page-locked memory" if ahead.locked else ""
    average = 0 if config.ema is None else weight * job.layout.size  # of the centre
    kept = f", and {_mib(average)} of the host's memory for the average of the centre" if average else ""
    fits = f"; up to {room} learner(s), {'no more are tried' if room == most else 'for memory'}" if auto else ""
    return (
        f"rank {rank}: {'auto, begins with ' * auto}{k} learner(s) x (arena {_mib(plan.arena_bytes)} + "
        f"{names} {_mib(replica)} + slots {_mib(ahead.learner)}){shared} + averaging {_mib(averaging)}{data} = "
        f"{_mib(total)} of {in_words(free)} that are free {job.device.memory.place}{locked}{kept}{fits}"
    )


def _and(*names: str) -> str:
    return " and ".join(", ".join(names).rsplit(", ", 1))


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
