"""Factorise: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from tests.kernels.cases import INITIAL, Case
from tests.kernels.checked import Checked, Looser, N
from tests.kernels.draw import (
    labels,
)


@st.composite
def factorisations(draw: st.DrawFn) -> Case:
    n, users, items = draw(st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 9)))
    op = ops.MatrixFactorisation(users, items, draw(st.integers(1, 40)), INITIAL)
    return Case(op, ((n,),) * 3, (draw(labels), draw(labels), FLOAT), min(users, items))


def matrix_factorisation(op, user: Array, item: Array, rating: Array, w) -> Array:
    rows = zip(user.tolist(), item.tolist(), rating.tolist(), strict=True)
    return np.array([(w["user"][i] @ w["item"][j] - r) ** 2 for i, j, r in rows])


CHECKED = (
    Checked(
        op=ops.MatrixFactorisation,
        cases=[Case(ops.MatrixFactorisation(4, 5, 3, INITIAL), ((7,), (7,), (7,)), ("int32", "int64", FLOAT))],
        large=[Case(ops.MatrixFactorisation(N, 2 * N, 3, INITIAL), ((N,),) * 3, ("int32", "int32", FLOAT), N)],
        random=factorisations(),
        plain=matrix_factorisation,
        lengths=lambda op, shapes: (op.factors + 1, 1, shapes[0][0] * (op.factors + 1)),
        looser=Looser(4, "as sum; backward's terms are twice products of three or four normal numbers"),
    ),
)
