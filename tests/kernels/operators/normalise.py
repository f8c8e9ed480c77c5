"""Normalise: what its tests take."""

from math import prod

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, Checked, Looser, Weights
from tests.kernels.draw import (
    pixels,
    tensors,
)


@st.composite
def normalisations(draw: st.DrawFn) -> Case:
    shape = draw(tensors)
    means = draw(st.sampled_from([shape[1], prod(shape[1:])]))
    spread, deviations = [-3 + 123 * i / means for i in range(means)], [1 + 59 * i / shape[1] for i in range(shape[1])]
    return Case(ops.Normalise(tuple(spread), tuple(deviations)), (shape,), (draw(pixels),), 256)


def normalised(op: ops.Normalise, x: Array, w: Weights) -> Array:
    y = np.zeros(x.shape)
    for at, value in np.ndenumerate(x):
        which = at[1] if len(op.mean) == x.shape[1] else np.ravel_multi_index(at[1:], x.shape[1:])
        y[at] = (float(value) - op.mean[which]) / op.std[at[1]]
    return y


CHECKED = (
    Checked(
        op=ops.Normalise,
        cases=[
            Case(ops.Normalise((3.0, 120.0), (2.0, 60.0)), ((2, 2, 3, 3),), ("uint8",), 256),
            Case(
                ops.Normalise(tuple(range(100, 118)), (2.0, 60.0)), ((3, 2, 3, 3),), ("uint8",), 256, id="a mean image"
            ),
        ],
        large=[
            Case(ops.Normalise((1.0,) * 6, (2.0,) * 6), (IMAGE,), ("uint8",), 200),
            Case(ops.Normalise((1.0,) * 150, (2.0,) * 6), (IMAGE,), ("uint8",), 200, id="a mean image"),
        ],
        random=normalisations(),
        plain=normalised,
        looser=Looser(12, "pixels and means up to 120 are subtracted: 2^-24 of these is 7e-6"),
    ),
)
