"""Axes in another order."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, Checked
from tests.kernels.draw import tensors


@st.composite
def orders(draw: st.DrawFn) -> Case:
    shape = draw(tensors)
    return Case(ops.Permute(tuple(draw(st.permutations(range(len(shape)))))), (shape,))


def plain(op: ops.Permute, x: Array, w) -> Array:
    y = np.zeros(op.infer(x.shape))
    for at, value in np.ndenumerate(x):
        y[tuple(at[axis] for axis in op.axes)] = value
    return y


CHECKED = (
    Checked(
        op=ops.Permute,
        cases=[Case(ops.Permute((1, 0)), ((3, 4),)), Case(ops.Permute((0, 2, 3, 1)), ((2, 3, 4, 2),), id="image")],
        large=[Case(ops.Permute((0, 2, 3, 1)), (IMAGE,))],
        random=orders(),
        plain=plain,
        lacking=("cuda",),
    ),
)
