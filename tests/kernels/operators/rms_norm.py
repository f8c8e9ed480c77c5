"""Root mean square normalisation."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import Back, Checked, Lengths, Looser, N, Shapes
from tests.kernels.draw import tensors


@st.composite
def norms(draw: st.DrawFn) -> Case:
    shape = draw(tensors)
    op = ops.RmsNorm(draw(st.integers(1, len(shape) - 1)), draw(st.sampled_from([1e-2, 1.0])))
    return Case(op, (shape,))


def plain(op: ops.RmsNorm, x: Array, w: Any) -> Array:
    axes = tuple(range(x.ndim - op.axes, x.ndim))
    return x / np.sqrt((x**2).mean(axes, keepdims=True) + op.epsilon) * w["weight"]


def back(op: ops.RmsNorm, x: Array, w: Any, dy: Array) -> Back:
    dx, dw, shape = np.zeros(x.shape), np.zeros(w["weight"].shape), x.shape[-op.axes :]
    for at in np.ndindex(*x.shape[: -op.axes]):  # by the Jacobian of each row
        row = x[at].ravel()
        s = np.sqrt((row**2).mean() + op.epsilon)
        jacobian = np.eye(row.size) / s - np.outer(row, row) / (row.size * s**3)
        dx[at] = (jacobian @ (dy[at] * w["weight"]).ravel()).reshape(shape)
        dw += dy[at] * x[at] / s
    return [dx], {"weight": dw}


def lengths(op: ops.RmsNorm, shapes: Shapes) -> Lengths:
    features = prod(shapes[0][-op.axes :])
    return features, features, prod(shapes[0]) // features


CHECKED = (
    Checked(
        op=ops.RmsNorm,
        cases=[Case(ops.RmsNorm(1, 1e-5), ((3, 2, 5),)), Case(ops.RmsNorm(2, 1e-2), ((4, 3, 2),), id="two axes")],
        large=[Case(ops.RmsNorm(2, 1e-5), ((N, 3, 4),))],
        random=norms(),
        plain=(plain, back),
        torch=lambda op, torch, x, weight: torch.nn.functional.rms_norm(x, x.shape[-op.axes :], weight, op.epsilon),
        lengths=lengths,
        looser=Looser(10, "as sum, divided by a deviation of sqrt(epsilon) = 0.1 or more"),
        lacking=("cuda",),
    ),
)
