"""Orders along an axis, cumulative sums, and sums by places."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from tests.kernels.cases import Case
from tests.kernels.checked import SUM, Checked, N
from tests.kernels.draw import indexed, tensors


@st.composite
def scatters(draw: st.DrawFn) -> Case:
    shape, axis, index = draw(indexed())
    return Case(ops.ScatterAdd(axis, shape), (index, index), (FLOAT, "int32"), shape[axis])


def scattered(op: ops.ScatterAdd, x: Array, index: Array, w) -> Array:
    y = np.zeros(op.shape)
    for place in np.ndindex(*index.shape):
        target = (*place[: op.axis], index[place], *place[op.axis + 1 :])
        y[target] += x[place]
    return y


CHECKED = (
    Checked(
        op=ops.ArgSort,
        cases=[Case(ops.ArgSort(1), ((3, 4),)), Case(ops.ArgSort(0), ((5, 4),), ("int32",), id="equal ones")],
        random=tensors.map(lambda shape: Case(ops.ArgSort(len(shape) - 1), (shape,))),
        plain=lambda op, x, w: np.argsort(x, op.axis, kind="stable"),
        torch=lambda op, torch, x: x.argsort(dim=op.axis, stable=True).int(),
        lacking=("cuda", "onednn"),
    ),
    Checked(
        op=ops.CumulativeSum,
        cases=[Case(ops.CumulativeSum(1), ((3, 4),)), Case(ops.CumulativeSum(0), ((5, 2, 3),), id="first")],
        large=[Case(ops.CumulativeSum(1), ((N, 5),))],
        random=tensors.map(lambda shape: Case(ops.CumulativeSum(len(shape) - 1), (shape,))),
        plain=lambda op, x, w: np.cumsum(x, op.axis),
        torch=lambda op, torch, x: x.cumsum(op.axis),
        lengths=lambda op, shapes: (shapes[0][op.axis], shapes[0][op.axis], 1),
        looser=SUM,
        lacking=("cuda", "onednn"),
    ),
    Checked(
        op=ops.ScatterAdd,
        cases=[
            Case(ops.ScatterAdd(1, (3, 4)), ((3, 2),) * 2, (FLOAT, "int32")),
            Case(ops.ScatterAdd(0, (3, 4)), ((5, 2),) * 2, (FLOAT, "int32"), 3, id="longer"),
        ],
        large=[Case(ops.ScatterAdd(1, (N, 5)), ((N, 2),) * 2, (FLOAT, "int32"))],
        random=scatters(),
        plain=scattered,
        torch=lambda op, torch, x, index: torch.zeros(op.shape, dtype=x.dtype).scatter_add(op.axis, index.long(), x),
        lengths=lambda op, shapes: (shapes[0][op.axis], 1, 1),
        looser=SUM,
        lacking=("cuda", "onednn"),
    ),
)
