"""Comparison, where and gather."""

import operator

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from tests.kernels.cases import Case
from tests.kernels.checked import SUM, Checked, N
from tests.kernels.draw import indexed, tensors

BY_SIGN = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne
}  # fmt: skip


@st.composite
def comparisons(draw: st.DrawFn) -> Case:
    shape, sign = draw(tensors), draw(st.sampled_from([*BY_SIGN]))
    if draw(st.booleans()):
        return Case(ops.Compare(sign, draw(st.sampled_from([0.0, 0.5]))), (shape,))
    return Case(ops.Compare(sign), (shape,) * 2)


@st.composite
def gathers(draw: st.DrawFn) -> Case:
    shape, axis, index = draw(indexed())
    return Case(ops.Gather(axis), (shape, index), (FLOAT, draw(st.sampled_from(["int32", "int64"]))), shape[axis])


def compared(op: ops.Compare, *args) -> Array:
    x, *others = args[:-1]
    return np.asarray(BY_SIGN[op.sign](x, *others or [op.number]))


def gathered(op: ops.Gather, x: Array, index: Array, w) -> Array:
    return np.take_along_axis(x[tuple(slice(i) for i in _cut(op, x, index))], index, op.axis)


def _cut(op: ops.Gather, x: Array, index: Array) -> list[int]:
    return [n if axis == op.axis else i for axis, (i, n) in enumerate(zip(index.shape, x.shape, strict=True))]


CHECKED = (
    Checked(
        op=ops.Compare,
        cases=[Case(ops.Compare("<"), ((3, 4),) * 2), Case(ops.Compare(">=", 0.5), ((3, 4),), id="a number")],
        large=[Case(ops.Compare("!="), ((N, 5),) * 2)],
        random=comparisons(),
        plain=compared,
    ),
    Checked(
        op=ops.Where,
        cases=[Case(ops.Where(), ((3, 4),) * 3, ("bool", FLOAT, FLOAT), 2)],
        large=[Case(ops.Where(), ((N, 5),) * 3, ("int32", FLOAT, FLOAT), 2)],
        random=tensors.map(lambda shape: Case(ops.Where(), (shape,) * 3, ("int32", FLOAT, FLOAT), 2)),
        plain=lambda op, condition, a, b, w: np.where(condition, a, b),
    ),
    Checked(
        op=ops.Gather,
        cases=[
            Case(ops.Gather(1), ((3, 4), (3, 2)), (FLOAT, "int32")),
            Case(ops.Gather(0), ((3, 4), (5, 2)), (FLOAT, "int64"), 3, id="shorter"),
        ],
        large=[Case(ops.Gather(1), ((N, 5), (N, 1)), (FLOAT, "int32"), 5)],
        random=gathers(),
        plain=gathered,
        lengths=lambda op, shapes: (1, shapes[1][op.axis], 1),
        looser=SUM,
        lacking=("cuda",),
    ),
)
