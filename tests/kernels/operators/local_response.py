"""Local response: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, SUM, Checked
from tests.kernels.draw import (
    one,
)


@st.composite
def responses(draw: st.DrawFn) -> ops.LocalResponseNorm:
    return ops.LocalResponseNorm(draw(st.integers(1, 9)), draw(st.sampled_from([0.1, 0.5])), 0.75, 2.0)


def neighbours(op: ops.LocalResponseNorm, channels: int, c: int) -> range:
    return range(max(0, c - op.size // 2), min(channels - 1, c + (op.size - 1) // 2) + 1)


def base(op: ops.LocalResponseNorm, x: Array, at: tuple[int, ...]) -> float:
    n, c, *rest = at
    squares = [float(x[(n, j, *rest)]) ** 2 for j in neighbours(op, x.shape[1], c)]
    return op.k + op.alpha / op.size * sum(squares)


def local_response_norm(op: ops.LocalResponseNorm, x: Array, w) -> Array:
    y = np.zeros(x.shape)
    for at, value in np.ndenumerate(x):
        y[at] = value / base(op, x, at) ** op.beta
    return y


CHECKED = (
    Checked(
        op=ops.LocalResponseNorm,
        cases=[
            Case(ops.LocalResponseNorm(5, 0.5, 0.75, 1.0), ((2, 7, 2, 3),)),
            Case(ops.LocalResponseNorm(4, 2.0, 0.5, 2.0), ((2, 3, 4),), id="even, wider than the channels"),
        ],
        large=[Case(ops.LocalResponseNorm(5, 1e-4, 0.75, 1.0), (IMAGE,))],
        random=responses().flatmap(one),
        plain=local_response_norm,
        lengths=lambda op, shapes: (op.size, op.size, 1),
        looser=SUM,
    ),
)
