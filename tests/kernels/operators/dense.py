"""Dense: what its tests take."""

from math import prod

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import INITIAL, Case
from tests.kernels.checked import SUM, Checked, N, Weights

WIDTHS = st.integers(1, 70) | st.sampled_from([16, 32, 64])


def dense(op: ops.Dense, x: Array, w: Weights) -> Array:
    y = np.zeros((*x.shape[:-1], op.units))
    for (*row, u), _ in np.ndenumerate(y):
        terms = (value * w["weight"][u, f] for f, value in enumerate(x[tuple(row)]))
        y[(*row, u)] = sum(terms) + (w["bias"][u] if op.bias else 0)
    return y


CHECKED = (
    Checked(
        op=ops.Dense,
        cases=[
            Case(ops.Dense(5, True, INITIAL), ((3, 4),)),
            Case(ops.Dense(2, False, INITIAL), ((1, 7),), id="no bias"),
            Case(ops.Dense(3, True, INITIAL), ((2, 3, 5),), id="of a sequence"),
        ],
        large=[Case(ops.Dense(5, True, INITIAL), ((N, 7),))],
        random=st.builds(
            lambda units, bias, shape: Case(ops.Dense(units, bias, INITIAL), (shape,)),
            WIDTHS,
            st.booleans(),
            st.tuples(st.integers(1, 70), WIDTHS) | st.tuples(st.integers(1, 3), st.integers(1, 30), WIDTHS),
        ),
        plain=dense,
        lengths=lambda op, shapes: (shapes[0][-1], op.units, prod(shapes[0][:-1])),
        looser=SUM,
    ),
)
