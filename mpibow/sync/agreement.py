"""The agreement of all ranks, now and then: the same bits of what they share, and a centre that is the true mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller

import numpy as np

from mpibow.comm import checksum
from mpibow.comm.communicator import Call
from mpibow.graph import Array
from mpibow.kernels import FlatKernels

from .distance import distances
from .engine import Engine
from .rows import Rows


@dataclass(frozen=True)
class Agreement:
    """The result of `agree`: W's relative distance from the true mean; the number of arrays unequal between ranks.

    The drift is that of a W which follows the sums of the steps; one that is made of the replicas has none. `distances`
    are those of all learners' replicas from the true mean.
    """

    drift: float
    mismatches: int
    distances: list[float]


@np.errstate(over="ignore", invalid="ignore")
def agree(call: Call, engine: Engine, rows: Rows, flat: FlatKernels, k: int) -> Agreement:
    """Compares the ranks' centres, and sets W to the k replicas' true mean; nothing may be under way.

    Where a rank's bits differ, before or after, rank 0's are sent to all.
    """
    mismatches = _mend(call, engine.shared(), flat)
    true = mean_over_ranks(call, rows.weights, flat, k)
    own = [distances(flat.host(rows.weights[i : i + 1]), true)[0] for i in range(len(rows.weights))]
    every = [found for part in call(lambda comm: comm.share(own)) for found in part]
    drift = engine.set_mean(true, partial(add_up, call))
    mismatches += _mend(call, engine.shared(), flat)
    if mismatches and engine.alike:
        engine.restart()
    return Agreement(drift, mismatches, every)


def add_up(call: Call, array: Array, stream: object = None) -> None:
    """Sums an array over the ranks, in place; one rank alone takes arrays of a device too."""
    call(lambda comm: comm.allreduce(array, stream) if comm.size > 1 else None)


def mean_over_ranks(call: Call, rows: Array, flat: FlatKernels, k: int) -> Array:
    """The mean of all k ranks' rows, (ranks' own, n), on the host."""
    mean = flat.rows_sum(rows)
    add_up(call, mean)
    mean *= mean.dtype.type(1.0 / k)
    return mean


def _mend(call: Call, arrays: Sequence[Array], flat: FlatKernels) -> int:
    """Sends rank 0's to all of the arrays whose bits differ between ranks; their number."""
    sums = [checksum(flat.host(array)) for array in arrays]
    different = [len(set(each)) > 1 for each in zip(*call(lambda comm: comm.share(sums)), strict=True)]
    for array, differs in zip(arrays, different, strict=True):
        if differs:
            call(methodcaller("broadcast", array))
    return sum(different)
