"""Combine: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from mpibow.graph.steps import Sum
from tests.kernels.cases import Case
from tests.kernels.checked import SUM, Checked, Looser, N
from tests.kernels.draw import (
    several,
    tensors,
)


@st.composite
def adds(draw: st.DrawFn) -> Case:
    coefficients = draw(st.lists(st.sampled_from([1.0, -1.0, 0.5, 3.0]), min_size=2, max_size=6))
    return Case(ops.Add(tuple(coefficients)), (draw(tensors),) * len(coefficients))


def add(op: ops.Add, *args) -> Array:
    y = np.zeros(args[0].shape)
    for coefficient, x in zip(op.coefficients, args[:-1], strict=True):
        y += coefficient * x
    return y


def multiply(op: ops.Multiply, *args) -> Array:
    return np.prod(args[:-1], axis=0)


def maximum(op: ops.Maximum, *args) -> Array:
    y = np.zeros(args[0].shape)
    for at, _ in np.ndenumerate(y):
        y[at] = max(x[at] for x in args[:-1])
    return y


CHECKED = (
    Checked(
        op=ops.Add,
        cases=[
            Case(ops.Add((1.0, 1.0)), ((3, 4), (3, 4))),
            Case(ops.Add((2.0, 1.0, -0.5)), ((2, 3), (2, 3), (2, 3)), id="three with coefficients"),
        ],
        large=[Case(ops.Add((1.0, 0.5, 1.0)), ((N, 5),) * 3)],
        random=adds(),
        plain=add,
        lengths=lambda op, shapes: (len(shapes), 1, 1),
        looser=Looser(3, "as sum, with coefficients up to 3"),
    ),
    Checked(
        op=ops.Multiply,
        cases=[Case(ops.Multiply(2), ((3, 4), (3, 4))), Case(ops.Multiply(3), ((2, 3), (2, 3), (2, 3)), id="three")],
        large=[Case(ops.Multiply(3), ((N, 5),) * 3)],
        random=several(ops.Multiply),
        plain=multiply,
    ),
    Checked(
        op=ops.Maximum,
        cases=[
            Case(ops.Maximum(2), ((3, 4), (3, 4))),
            Case(ops.Maximum(3), ((2, 3, 2), (2, 3, 2), (2, 3, 2)), id="three"),
        ],
        large=[Case(ops.Maximum(3), ((N, 5),) * 3)],
        random=several(ops.Maximum),
        plain=maximum,
    ),
    Checked(
        op=Sum,
        cases=[Case(Sum(), ((3, 4), (3, 4))), Case(Sum(), ((2, 2), (2, 2), (2, 2)), (FLOAT, FLOAT, FLOAT), id="three")],
        large=[Case(Sum(), ((N, 5),) * 3)],
        random=several(lambda n: Sum()),
        plain=lambda op, *args: np.sum(args[:-1], axis=0),
        lengths=lambda op, shapes: (len(shapes), 1, 1),
        looser=SUM,
    ),
)
