"""Activation: what its tests take."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, Looser, N, elementwise
from tests.kernels.draw import (
    one,
)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


CHECKED = (
    Checked(
        op=ops.Relu,
        cases=[Case(ops.Relu(), ((4, 5),))],
        large=[Case(ops.Relu(), ((N, 5),))],
        random=one(ops.Relu()),
        plain=lambda op, x, w: np.where(x > 0, x, 0),
    ),
    Checked(
        op=ops.LeakyRelu,
        cases=[Case(ops.LeakyRelu(0.1), ((4, 5),)), Case(ops.LeakyRelu(1.5), ((4, 5),), id="steeper below")],
        large=[Case(ops.LeakyRelu(0.1), ((N, 5),))],
        random=st.sampled_from([0.0, 0.1, 1.5]).flatmap(lambda slope: one(ops.LeakyRelu(slope))),
        plain=elementwise(lambda op, x: x if x > 0 else op.slope * x),
    ),
    Checked(
        op=ops.ClippedRelu,
        cases=[Case(ops.ClippedRelu(0.7), ((4, 9),))],
        large=[Case(ops.ClippedRelu(6.0), ((N, 5),))],
        random=one(ops.ClippedRelu(0.7)),
        plain=elementwise(lambda op, x: min(max(x, 0), op.ceiling)),
    ),
    Checked(
        op=ops.Sigmoid,
        cases=[Case(ops.Sigmoid(), ((4, 5),))],
        large=[Case(ops.Sigmoid(), ((N, 5),))],
        random=one(ops.Sigmoid()),
        plain=lambda op, x, w: sigmoid(x),
        looser=Looser(1, "backward has 1 - y, of a y that is rounded"),
    ),
    Checked(
        op=ops.Tanh,
        cases=[Case(ops.Tanh(), ((2, 3, 2),))],
        large=[Case(ops.Tanh(), ((N, 5),))],
        random=one(ops.Tanh()),
        plain=lambda op, x, w: np.tanh(x),
        looser=Looser(1, "backward has 1 - y^2, of a y that is rounded"),
    ),
)
