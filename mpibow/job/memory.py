"""The memory of a rank: the bytes of one more learner, the free bytes, and the learners that fit."""

import resource

import numpy as np
import psutil

from mpibow.comm import Communicator
from mpibow.comm.cgroups import memory_left, own_group
from mpibow.data.loading import Loading, ReadAheadMemory
from mpibow.data.pipeline_choice import Resources, find_facts
from mpibow.errors import ConfigError
from mpibow.graph import Plan
from mpibow.sync import MOST, RuleSettings
from mpibow.system import in_words
from mpibow.tune import Counts, shortened

TAKEN = 0.8  # of the memory that is free


def learner_bytes(
    training: Plan, evaluation: Plan | None = None, slots: int = 0, states: float = 0, one: bool = False
) -> int:
    """Memory that one more learner takes: its replica, its thread's part of training and of evaluations, its slots.

    `slots` are the bytes that reading ahead holds for it, `states` the number of arrays that the local step keeps.
    `one`: it shares the weights and states of the others.
    """
    arenas = sum(plan.arena_bytes for plan in (training, *training.shorter.values()))
    held = arenas + (evaluation.arena_bytes if evaluation else 0) + slots
    return held + replica_bytes(training, states) - (copy_bytes(training, states) if one else 0)


def replica_bytes(training: Plan, states: float) -> int:
    """Bytes of weights, gradients and so many states, and of a 16-bit copy of weights where 16 bits are computed in."""
    narrow = 2 * training.layout.size if training.dtype != training.weight_dtype else 0
    return copy_bytes(training, states + 1) + narrow


def copy_bytes(training: Plan, states: float = 0) -> int:
    """Bytes of weights and so many states."""
    return round((1 + states) * training.layout.size) * np.dtype(training.weight_dtype).itemsize


def free_memory(ranks: int) -> int:
    """A rank's share, of `ranks` on its node, of the bytes that are free there and the control group's limit leaves.

    Never more than its own limit (`ulimit -v`, a batch system's) leaves.
    """
    available = int(psutil.virtual_memory().available)
    left = memory_left()
    share = (available if left is None else min(available, left)) // ranks
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)  # of addresses, touched or not
    if limit == resource.RLIM_INFINITY:
        return share
    return min(share, max(limit - int(psutil.Process().memory_info().vms), 0))


def room_for(free: int, learner: int, most: int, lockable: int = 0, locked: int = 0) -> int:
    """Learners that there is memory for, at least 1, at most `most`: each takes `learner` of the `free` bytes where it
    computes, and, of a GPU, `locked` of the host's `lockable` ones.

    A fifth stays free for the unknown rest of the process.
    """
    fitting = min(TAKEN * free / learner, TAKEN * lockable / locked if locked else most)
    return min(max(1, int(fitting)), most)


def memory_warnings(comm: Communicator, counts: Counts, room: int) -> list[str]:
    """The ranks that have more learners than there is `room` for: the system grants memory that it does not have."""
    warnings = [
        f"warning: rank {rank} has memory for about {fitting} of its {k} learners: use fewer, or learners=auto"
        for rank, (fitting, k) in enumerate(zip(comm.share(room), counts, strict=True))
        if fitting < k
    ]
    return shortened(warnings, "ranks likewise")


class Memory:
    """The memory where learners compute, in bytes: the node's, which its ranks share.

    A device with memory of its own overrides it. All ranks call it alike.
    """

    place = "for a rank"  # in messages, after "that are free"
    peak: int | None = None  # the most bytes held so far; None where that is not known

    def free(self, comm: Communicator) -> int:
        """This rank's share of the free memory. Collective."""
        return free_memory(comm.local_size)

    def facts(self, comm: Communicator) -> Resources:
        """The facts that the choice of a pipeline depends on. Collective."""
        return find_facts(comm.local_size)

    def held(self, loading: Loading) -> ReadAheadMemory:
        """The bytes that reading ahead takes."""
        return loading.held

    def lockable(self, comm: Communicator) -> int:
        """The bytes of the host's memory that may be page-locked."""
        return free_memory(comm.local_size)

    def fits(self, comm: Communicator, learner: int, held: ReadAheadMemory) -> int:
        """The number of learners of `learner` bytes that fit beside `held`. Collective."""
        return room_for(self.free(comm) - held.data, learner, MOST, self.lockable(comm), held.locked)

    def check(
        self,
        comm: Communicator,
        k: int,
        training: Plan,
        evaluation: Plan | None,
        states: float,
        loading: Loading,
        averaging: RuleSettings,
    ) -> None:
        """Raises ConfigError where k learners, each with so many states, cannot fit in what a control group leaves its
        ranks. Collective.

        The system grants them more, and kills them when they write to it.
        """
        one = averaging.one_copy
        array = copy_bytes(training)
        learners = k * learner_bytes(training, evaluation, loading.held.learner, states, one)
        centre = array * (3 if comm.size > 1 else 1)  # and the two arrays that ranks send in turn
        need = {
            f"for {k} learner(s)": learners + (copy_bytes(training, states) if one else 0),
            "for averaging": centre,
            "for resident data": loading.resident,
        }
        everyone = comm.share((own_group(), sum(need.values()), memory_left()))
        for group, _, left in everyone:
            needs = [bytes_ for other, bytes_, _ in everyone if other == group]
            if left is not None and sum(needs) > left:
                parts = ", ".join(f"{in_words(size)} {purpose}" for purpose, size in need.items() if size)
                raise ConfigError(
                    f"memory: {len(needs)} rank(s) of a control group need {in_words(sum(needs))} ({parts} each), and "
                    f"its limit leaves {in_words(left)}: use fewer learners or a smaller batch_size, or ask for more "
                    "memory"
                )
