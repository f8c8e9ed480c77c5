"""Long short-term memory over a sequence."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import INITIAL, Case
from tests.kernels.checked import SUM, Checked, Lengths, N, Shapes
from tests.kernels.draw import Cases


def sequences(make, states: int) -> Cases:
    """Of up to five steps: `make` gives the operator of so many units, with so many initial states or none."""
    return st.builds(
        lambda units, shape, given: Case(make(units, INITIAL, given), (shape, *[(shape[0], units)] * (states * given))),
        st.integers(1, 9),
        st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 9)),
        st.booleans(),
    )


def sigmoid(x: Array):
    return 1 / (1 + np.exp(-x))


def plain(op: ops.Lstm, x: Array, *given) -> Array:
    *states, w = given
    y = np.zeros((*x.shape[:2], op.units))
    for n in range(len(x)):
        h, c = (state[n] for state in states) if states else [np.zeros(op.units)] * 2
        for t, row in enumerate(x[n]):
            gates = w["weight_ih"] @ row + w["bias_ih"] + w["weight_hh"] @ h + w["bias_hh"]
            i, f, g, o = np.split(gates, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            y[n, t] = h = sigmoid(o) * np.tanh(c)
    return y


def lengths(op, shapes: Shapes) -> Lengths:
    n, t, features = shapes[0]
    return (features + op.units) * t, 4 * (features + op.units) * t, 4 * n * t * op.units


CHECKED = (
    Checked(
        op=ops.Lstm,
        cases=[
            Case(ops.Lstm(3, INITIAL), ((2, 4, 5),)),
            Case(ops.Lstm(2, INITIAL), ((1, 1, 3),), id="one step"),
            Case(ops.Lstm(3, INITIAL, True), ((2, 4, 5), (2, 3), (2, 3)), id="states"),
        ],
        large=[Case(ops.Lstm(3, INITIAL), ((N, 2, 5),))],
        random=sequences(ops.Lstm, 2),
        plain=plain,
        lengths=lengths,
        looser=SUM,
        lacking=("cuda",),
    ),
)
