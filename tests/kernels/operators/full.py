"""Tensors of one number, and of numbers that rise."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N
from tests.kernels.draw import tensors

CHECKED = (
    Checked(
        op=ops.Full,
        cases=[Case(ops.Full((3, 4), -0.5), ())],
        large=[Case(ops.Full((N, 5), 2.0), ())],
        random=tensors.map(lambda shape: Case(ops.Full(shape, 0.25), ())),
        plain=lambda op, w: np.full(op.shape, op.value),
        lacking=("cuda",),
    ),
    Checked(
        op=ops.Arange,
        cases=[Case(ops.Arange(7), ())],
        large=[Case(ops.Arange(N), ())],
        random=st.integers(1, 99).map(lambda count: Case(ops.Arange(count), ())),
        plain=lambda op, w: np.arange(op.count),
        lacking=("cuda",),
    ),
)
