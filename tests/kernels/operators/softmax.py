"""Softmax: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, SUM, Checked
from tests.kernels.draw import (
    counts,
    images,
    rows,
)


@st.composite
def softmaxes(draw: st.DrawFn, kind) -> Case:
    shape = draw(st.one_of(rows, images, st.tuples(counts, st.integers(1, 40), st.integers(1, 4))))
    return Case(kind(draw(st.integers(0, len(shape) - 1))), (shape,))


def softmax(op, x: Array, w) -> Array:
    y = np.exp(x - x.max(axis=op.axis, keepdims=True))
    return y / y.sum(axis=op.axis, keepdims=True)


def softmax_record(kind, plain, lacking: tuple[str, ...]) -> Checked:
    return Checked(
        op=kind,
        cases=[Case(kind(1), ((5, 4),)), Case(kind(2), ((2, 3, 4, 2),), id="inner axis")],
        large=[Case(kind(1), (IMAGE,))],
        random=softmaxes(kind),
        plain=plain,
        lengths=lambda op, shapes: (shapes[0][op.axis], shapes[0][op.axis], 1),
        looser=SUM,
        lacking=lacking,
    )


CHECKED = (
    softmax_record(ops.Softmax, softmax, ()),
    softmax_record(ops.LogSoftmax, lambda op, x, w: np.log(softmax(op, x, w)), ("cuda",)),
)
