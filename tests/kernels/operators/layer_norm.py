"""Layer norm: what its tests take."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import Back, Checked, Lengths, Looser, N, Shapes
from tests.kernels.draw import (
    tensors,
)


def some(axes: int, draw: st.DrawFn) -> ops.LayerNorm:
    return ops.LayerNorm(draw(st.integers(1, axes)), draw(st.sampled_from([1e-2, 1.0])))


@st.composite
def layer_norms(draw: st.DrawFn) -> Case:
    shape = draw(tensors)
    return Case(some(len(shape) - 1, draw), (shape,))


def layer_norm(op: ops.LayerNorm, x: Array, w: Any) -> Array:
    axes = tuple(range(x.ndim - op.axes, x.ndim))
    hat = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + op.epsilon)
    return hat * w["weight"] + w["bias"]


def layer_norm_back(op: ops.LayerNorm, x: Array, w: Any, dy: Array) -> Back:
    dx, dw = np.zeros(x.shape), {key: np.zeros(array.shape) for key, array in w.items()}
    shape = x.shape[-op.axes :]
    for at in np.ndindex(*x.shape[: -op.axes]):  # by the Jacobian of each row
        row, size = x[at].ravel(), x[at].size
        deviation, s = row - row.mean(), np.sqrt(row.var() + op.epsilon)
        jacobian = (np.eye(size) - 1 / size) / s - np.outer(deviation, deviation) / (size * s**3)
        dx[at] = (jacobian @ (dy[at] * w["weight"]).ravel()).reshape(shape)
        dw["weight"] += dy[at] * (deviation / s).reshape(shape)
        dw["bias"] += dy[at]
    return [dx], dw


def lengths(op: ops.LayerNorm, shapes: Shapes) -> Lengths:
    features = prod(shapes[0][-op.axes :])
    return features, features, prod(shapes[0]) // features


CHECKED = (
    Checked(
        op=ops.LayerNorm,
        cases=[Case(ops.LayerNorm(1, 1e-5), ((3, 2, 5),)), Case(ops.LayerNorm(2, 1e-2), ((4, 3, 2),), id="two axes")],
        large=[Case(ops.LayerNorm(2, 1e-5), ((N, 3, 4),))],
        random=layer_norms(),
        plain=(layer_norm, layer_norm_back),
        lengths=lengths,
        looser=Looser(10, "as sum, divided by a deviation of sqrt(epsilon) = 0.1 or more"),
        torch=lambda op, torch, x, weight, bias: torch.nn.functional.layer_norm(
            x, x.shape[-op.axes :], weight, bias, op.epsilon
        ),
    ),
)
