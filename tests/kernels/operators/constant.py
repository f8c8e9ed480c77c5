"""Tensors of given numbers."""

import numpy as np

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N
from tests.kernels.draw import tensors


def table(*shape: int) -> ops.Table:
    return ops.Table(shape, tuple(np.random.default_rng(0).standard_normal(shape).reshape(-1).tolist()))


CHECKED = (
    Checked(
        op=ops.Table,
        cases=[Case(table(3, 4), ()), Case(ops.Table((2,), (7.0, -2.0)), ())],
        large=[Case(table(N, 5), ())],
        random=tensors.map(lambda shape: Case(table(*shape), ())),
        plain=lambda op, w: np.array(op.values).reshape(op.shape),
        lacking=("cuda",),
    ),
)
