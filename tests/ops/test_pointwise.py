"""The formulas of operators of one element: what they are told, and what they may read."""

from __future__ import annotations

import pytest

from mpibow import ops
from mpibow.errors import FormulaError
from mpibow.ops import pointwise, unary
from tests.kernels.cases import Bench, Case, name
from tests.kernels.operators import CASES


@pytest.mark.parametrize("case", [case for case in CASES if type(case.op) in ops.FORMULAS], ids=name)
def test_a_gradient_reads_what_its_operator_says(case: Case) -> None:
    """A plan hands it no more: memory of what is not read may be others' by then."""
    op, inputs = case.op, {"x0": 0, "x": 0, **{f"x{i}": i for i in range(len(case.shapes))}}
    made = ops.FORMULAS[type(op)](op)
    value = made.half(False)
    assert set(value.arrays) <= set(inputs)
    assert all(isinstance(getattr(op, scalar), float) for scalar in value.scalars)
    assert (made.gradient is None) == (op.differentiable is None)
    if made.gradient is not None:
        gradient = made.half(True)
        read = {"x" if array in inputs else array for array in gradient.arrays} - {"dy"}
        assert read == op.reads
        assert len(gradient.results) == len(op.differentiable)


def test_a_gradient_that_takes_what_its_operator_does_not_read_is_refused() -> None:
    """Its plan would train on memory that others have written."""
    case = next(case for case in CASES if isinstance(case.op, ops.Relu))
    kernel = pointwise.reference(ops.Relu, pointwise.always(unary.abs_value, unary.abs_gradient))
    with pytest.raises(FormulaError, match=r"^operator relu: its gradient abs_gradient takes x, its `reads` does not$"):
        Bench(case, kernel, "float64").backward()
