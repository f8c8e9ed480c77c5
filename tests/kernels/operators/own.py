"""An operator of a script's own."""

import numpy as np

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import Checked
from tests.kernels.draw import tensors


def forward(x: Array) -> Array:
    return np.asarray(x * np.abs(x))


def backward(x: Array, y: Array, dy: Array) -> Array:
    return np.asarray(2 * dy * np.abs(x))


SIGNED_SQUARE = ops.Own("signed_square", forward, backward, lambda shape: shape, (0,))

CHECKED = (
    Checked(
        op=ops.Own,
        cases=[Case(SIGNED_SQUARE, ((3, 4),))],
        random=tensors.map(lambda shape: Case(SIGNED_SQUARE, (shape,))),
        plain=lambda op, x, w: x**2 * np.sign(x),
        lacking=("onednn", "cuda"),
    ),
)
