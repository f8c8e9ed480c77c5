"""Gated recurrent units over a sequence."""

import numpy as np

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import INITIAL, Case
from tests.kernels.checked import SUM, Checked, N
from tests.kernels.operators.lstm import lengths, sequences, sigmoid


def plain(op: ops.Gru, x: Array, *given) -> Array:
    *states, w = given
    y = np.zeros((*x.shape[:2], op.units))
    for n in range(len(x)):
        h = states[0][n] if states else np.zeros(op.units)
        for t, row in enumerate(x[n]):
            a = np.split(w["weight_ih"] @ row + w["bias_ih"], 3)
            b = np.split(w["weight_hh"] @ h + w["bias_hh"], 3)
            r, z = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
            y[n, t] = h = (1 - z) * np.tanh(a[2] + r * b[2]) + z * h
    return y


CHECKED = (
    Checked(
        op=ops.Gru,
        cases=[
            Case(ops.Gru(3, INITIAL), ((2, 4, 5),)),
            Case(ops.Gru(2, INITIAL), ((1, 1, 3),), id="one step"),
            Case(ops.Gru(3, INITIAL, True), ((2, 4, 5), (2, 3)), id="state"),
        ],
        large=[Case(ops.Gru(3, INITIAL), ((N, 2, 5),))],
        random=sequences(ops.Gru, 1),
        plain=plain,
        lengths=lengths,
        looser=SUM,
        lacking=("cuda",),
    ),
)
