"""The formulas of operators of one element: what they are told, and what they may read."""

import pytest

from mpibow import ops
from tests.kernels.cases import Case, name
from tests.kernels.operators import CASES


@pytest.mark.parametrize("case", [case for case in CASES if type(case.op) in ops.POINTWISE], ids=name)
def test_a_gradient_reads_what_its_operator_says(case: Case):
    """A plan hands it no more: memory of what is not read may be others' by then."""
    op, inputs = case.op, {"x", *(f"x{i}" for i in range(len(case.shapes)))}
    value = op.half(False)
    assert set(value.arrays) <= inputs
    assert all(isinstance(getattr(op, scalar), float) for scalar in value.scalars)
    if op.differentiable is not None:
        gradient = op.half(True)
        assert {array[0] for array in gradient.arrays} - {"d"} == set(op.reads)
        assert len(gradient.results) == len(op.differentiable)
