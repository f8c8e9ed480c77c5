"""Windows, masks, shares, mixtures and targets: the compiled kernels' bits are NumPy's, and nothing else is written."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.graph import Array
from mpibow.kernels.compiled.command import Command
from mpibow.kernels.compiled.table import OPERATORS
from mpibow.kernels.numpy import OPERATORS as NUMPY
from tests.kernels.cases import Bench, Case, poisoned
from tests.kernels.shapes import RANDOM

GUARD = 32  # numbers on either side of y
EXACT = (ops.Augment, ops.CentreCrop, ops.Cutout, ops.Dropout, ops.Jitter, ops.Mix, ops.MixShares, ops.OneHot)


def both(case: Case, seed: int = 0) -> tuple[Bench, Bench]:
    return tuple(Bench(case, table[type(case.op)], "float32", seed) for table in (OPERATORS, NUMPY))


def guarded(bench: Bench, node: str) -> Array:
    """y of the kernel as the node `node`, and the numbers around y."""
    room = poisoned((prod(bench.shape) + 2 * GUARD,), bench.y.dtype.name)
    bench.y = room[GUARD:-GUARD].reshape(bench.shape)
    bench.kernel.forward(replace(bench.call(backward=False), name=node))()
    return room


@pytest.mark.parametrize("op", EXACT, ids=lambda op: op.kind)
@settings(max_examples=40)
@given(data=st.data(), seed=st.integers(0, 1000), node=st.sampled_from(["node", "another"]))
def test_its_bits_are_numpys(op: type, data: st.DataObject, seed, node):
    mine, theirs = both(data.draw(RANDOM[op]), seed)
    if op is ops.OneHot:
        for bench in (mine, theirs):
            bench.x[0][...] -= 2  # some are below every class, some above
    np.testing.assert_array_equal(guarded(mine, node).view(np.uint8), guarded(theirs, node).view(np.uint8))


@pytest.mark.parametrize(
    "op",
    [
        ops.Augment(2, (5, 4), True),
        ops.CentreCrop((3, 2)),
        ops.Jitter(0.4, 0.4),
        ops.Normalise((9.0, 1e4), (2.0, 60.0)),
    ],
    ids=lambda op: op.kind,
)
def test_pixels_of_another_type_are_numpys_task(op):
    shapes = ((3, 2, 6, 5), (3, 4))[: 1 + isinstance(op, ops.Augment | ops.Jitter)]
    mine, theirs = both(Case(op, shapes, ("int16", "uint32")[: len(shapes)], 1 << 15))
    assert not isinstance(mine.kernel.forward(mine.call(backward=False)), Command)
    np.testing.assert_array_equal(mine.forward(), theirs.forward())


def test_a_mixture_of_what_is_no_number_and_of_numbers_far_apart():
    mine, theirs = both(Case(ops.Mix(), ((3, 8), (3,))))
    for bench in (mine, theirs):
        bench.x[0][0] = [np.nan, np.inf, -np.inf, np.inf, 3e38, 1e-40, 1e30, -0.0]
        bench.x[0][1] = [1.0, 1.0, 1.0, np.inf, -3e38, 1e-42, 1.0, 0.0]
        bench.x[0][2] = [1.0, 2.0, 3.0, 4.0, 1e-30, 1e-45, 1e30, -0.0]
        bench.x[1][...] = [0.7, 0.5, 1.0]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(mine.forward(), theirs.forward())
