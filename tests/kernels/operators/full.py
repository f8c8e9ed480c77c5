"""Tensors of one number."""

from __future__ import annotations

import numpy as np

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
)
