"""The formulas of operators of one element: what they are told, and what they may read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from mpibow import ops
from mpibow.errors import FormulaError
from mpibow.graph.graph import Graph
from mpibow.graph.plan import choose_layout, compile_plan
from mpibow.kernels import NUMPY
from mpibow.ops import pointwise
from mpibow.ops.activation import Elementwise
from mpibow.ops.pointwise import Element
from tests.kernels.cases import Case, name
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


@dataclass(frozen=True)
class Cube(Elementwise):
    kind = "cube"


def cube(x: Element) -> Element:
    return x * x * x


def cube_gradient(x: Element, dy: Element) -> Element:
    return 3 * x * x * dy


def test_a_gradient_that_takes_what_its_operator_does_not_read_is_refused() -> None:
    """Its plan would train on memory that others have written."""
    kernel = pointwise.reference(Cube, pointwise.always(cube, cube_gradient))
    kernels = replace(NUMPY, operators={**NUMPY.operators, Cube: kernel})
    graph = Graph()
    graph.output("loss", ops.sum(graph.add(Cube(), ops.parameter((2, 3)))))
    layout = choose_layout(graph, kernels)
    plan = compile_plan(graph, layout, kernels, "float64", training=True)
    with pytest.raises(
        FormulaError, match=r"^operator cube: its gradient cube_gradient takes x, its `reads` does not$"
    ):
        plan.bind(np.zeros(layout.size), np.zeros(layout.size))
