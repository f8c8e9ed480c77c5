"""Kernels allocate nothing while they run: every case, at a size where any array of theirs would stand out."""

import pytest

from mpibow import ops
from mpibow.kernels.numpy import OPERATORS
from tests.allocations import allocated
from tests.kernels.cases import Bench, Case, name
from tests.kernels.operators import LARGE

LIMIT = 3072  # bytes: NumPy's iterators and small objects


@pytest.mark.parametrize("case", LARGE, ids=name)
def test_nothing_is_allocated(case: Case):
    kernel = OPERATORS[type(case.op)]
    bench = Bench(case, kernel, "float32")
    assert allocated(kernel.forward(bench.call(backward=False)))[0] < LIMIT
    if kernel.backward is not None:
        assert allocated(kernel.backward(bench.call(backward=True)))[0] < LIMIT


def test_every_kernel_is_here():
    """But those that a script brings, which give new arrays, as NumPy's sort, and a weight, whose kernel is a copy."""
    assert {type(case.op) for case in LARGE} >= set(OPERATORS) - {ops.ArgSort, ops.Own, ops.Parameter}
