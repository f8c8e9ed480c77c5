"""Rotary position embedding."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import SUM, Checked, N

shapes = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9).map(lambda half: 2 * half))


def turned(op: ops.Rotary, x: Array, sign: int) -> Array:
    """As complex numbers."""
    half = x.shape[-1] // 2
    z = x[..., :half] + 1j * x[..., half:]
    for p in range(x.shape[-2]):
        z[..., p, :] *= np.exp(sign * 1j * p * op.base ** (-np.arange(half) / half))
    return np.concatenate([z.real, z.imag], -1)


CHECKED = (
    Checked(
        op=ops.Rotary,
        cases=[Case(ops.Rotary(10000.0), ((2, 3, 4),)), Case(ops.Rotary(10.0), ((2, 2, 3, 6),), id="heads")],
        large=[Case(ops.Rotary(10000.0), ((N, 3, 4),))],
        random=shapes.map(lambda shape: Case(ops.Rotary(100.0), (shape,))),
        plain=lambda op, x, w: turned(op, x, 1),
        looser=SUM,
        lacking=("cuda",),
    ),
)
