"""Concat: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N
from tests.kernels.draw import (
    tensors,
)


@st.composite
def concats(draw: st.DrawFn, kind=ops.Concat) -> Case:
    first = draw(tensors)
    axis, count = draw(st.integers(0, len(first) - 1)), draw(st.integers(1, 4))
    extent = st.sampled_from([16, 32, 8]) if draw(st.booleans()) else st.integers(1, 20)
    shapes = [(*first[:axis], draw(extent), *first[axis + 1 :]) for _ in range(count)]
    return Case(
        kind(count, axis), tuple(shapes), (FLOAT if kind is ops.Concat else draw(st.sampled_from([FLOAT, "int32"])),)
    )


def concat(op: ops.Concat, *args) -> Array:
    return np.concatenate(args[:-1], axis=op.axis)


CHECKED = (
    Checked(
        op=ops.Concat,
        cases=[
            Case(ops.Concat(2, 1), ((2, 3, 2, 2), (2, 1, 2, 2))),
            Case(ops.Concat(3, 2), ((2, 2, 1), (2, 2, 3), (2, 2, 2)), id="three, last axis"),
            Case(ops.Concat(1, 0), ((3, 2),), id="one, first axis"),
        ],
        large=[Case(ops.Concat(2, 1), ((N, 5), (N, 2)))],
        random=concats(),
        plain=concat,
    ),
)
