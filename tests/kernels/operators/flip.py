"""Axes the other way round."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, Checked
from tests.kernels.draw import tensors


def plain(op: ops.Flip, x: Array, w) -> Array:
    y = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        there = (x.shape[axis] - 1 - i if axis in op.axes else i for axis, i in enumerate(place))
        y[tuple(there)] = x[place]
    return y


@st.composite
def flips(draw: st.DrawFn) -> Case:
    shape = draw(tensors)
    axes = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    return Case(ops.Flip(tuple(axes)), (shape,))


CHECKED = (
    Checked(
        op=ops.Flip,
        cases=[
            Case(ops.Flip((1,)), ((3, 4, 2),)),
            Case(ops.Flip((2, 0)), ((3, 4, 2),), id="two"),
        ],
        large=[Case(ops.Flip((1,)), (IMAGE,))],
        random=flips(),
        plain=plain,
        lacking=("onednn", "cuda"),
    ),
)
