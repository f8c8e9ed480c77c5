"""Softplus: what its tests take."""

from __future__ import annotations

import math

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N, elementwise
from tests.kernels.draw import one

CHECKED = (
    Checked(
        op=ops.Softplus,
        cases=[Case(ops.Softplus(), ((4, 5),))],
        large=[Case(ops.Softplus(), ((N, 5),))],
        random=one(ops.Softplus()),
        plain=elementwise(lambda op, x: math.log(1 + math.exp(x))),
    ),
)
