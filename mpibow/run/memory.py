"""The memory of a rank's host: what one more learner takes of it, and how much is free."""

from __future__ import annotations

import resource

import numpy as np
import psutil

from mpibow.comm.cgroups import memory_left
from mpibow.graph.plan import Plan

TAKEN = 0.8  # of the memory that is free


def learner_bytes(training: Plan, evaluation: Plan | None = None, slots: int = 0) -> int:
    """Memory that one more learner takes: its replica, its thread's part of training and of evaluations, its slots.

    `slots` is what slots_of says.
    """
    return training.arena_bytes + replica_bytes(training) + (evaluation.arena_bytes if evaluation else 0) + slots


def replica_bytes(training: Plan) -> int:
    """Weights, gradients and momenta, and weights once more in 16 bits where that is what is computed in."""
    narrow = 2 * training.layout.size if training.dtype != training.weight_dtype else 0
    return 3 * training.layout.size * np.dtype(training.weight_dtype).itemsize + narrow


def free_memory(ranks: int) -> int:
    """A rank's share, of `ranks` on its node, of the bytes that are free there and the control group's limit leaves.

    Never more than its own limit (`ulimit -v`, a batch system's) leaves.
    """
    available, left, own = int(psutil.virtual_memory().available), memory_left(), addresses_left()
    share = (available if left is None else min(available, left)) // ranks
    return share if own is None else min(share, own)


def addresses_left() -> int | None:
    """Bytes of addresses that this process may still take, touched or not, at least 0; None: no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else max(limit - int(psutil.Process().memory_info().vms), 0)


def room_for(free: int, learner: int, most: int) -> int:
    """Learners that there is memory for, `learner` bytes each of `free` ones: at least 1, at most `most`.

    A fifth stays free: what a process takes beside its learners is not known before.
    """
    return min(max(1, int(TAKEN * free / learner)), most)
