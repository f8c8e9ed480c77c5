"""Products of matrices."""

from math import prod

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import SUM, Checked, Lengths, N, Shapes


@st.composite
def products(draw: st.DrawFn) -> Case:
    front = tuple(draw(st.lists(st.integers(1, 4), max_size=2)))
    m, k, n = draw(st.tuples(*[st.integers(1, 20)] * 3))
    return Case(ops.Matmul(), ((*front, m, k), (*(front if draw(st.booleans()) else ()), k, n)))


def plain(op: ops.Matmul, a: Array, b: Array, w) -> Array:
    y = np.zeros((*a.shape[:-1], b.shape[-1]))
    for (*front, i, j), _ in np.ndenumerate(y):
        matrix = b[tuple(front)] if b.ndim > 2 else b
        y[(*front, i, j)] = sum(a[(*front, i, k)] * matrix[k, j] for k in range(a.shape[-1]))
    return y


def lengths(op: ops.Matmul, shapes: Shapes) -> Lengths:
    a, b = shapes
    return a[-1], max(b[-1], prod(a[:-1])), 1


CHECKED = (
    Checked(
        op=ops.Matmul,
        cases=[
            Case(ops.Matmul(), ((3, 4), (4, 2))),
            Case(ops.Matmul(), ((2, 3, 4), (2, 4, 5)), id="many"),
            Case(ops.Matmul(), ((2, 2, 3, 4), (4, 2)), id="one for many"),
        ],
        large=[Case(ops.Matmul(), ((N, 7), (7, 3))), Case(ops.Matmul(), ((N // 4, 4, 3), (N // 4, 3, 5)), id="many")],
        random=products(),
        plain=plain,
        lengths=lengths,
        looser=SUM,
        lacking=("cuda",),
    ),
)
