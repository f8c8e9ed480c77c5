"""Group normalisation."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, Back, Checked, Lengths, Looser, Shapes


@st.composite
def norms(draw: st.DrawFn) -> Case:
    groups, each = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    rest = draw(st.lists(st.integers(1, 6), max_size=2))
    op = ops.GroupNorm(groups, draw(st.sampled_from([1e-2, 1.0])))
    return Case(op, ((draw(st.integers(1, 5)), groups * each, *rest),))


def plain(op: ops.GroupNorm, x: Array, w: Any) -> Array:
    rows = x.reshape(len(x), op.groups, -1)
    hat = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + op.epsilon)
    shape = (-1, *[1] * (x.ndim - 2))
    return hat.reshape(x.shape) * w["weight"].reshape(shape) + w["bias"].reshape(shape)


def back(op: ops.GroupNorm, x: Array, w: Any, dy: Array) -> Back:
    rows, shape = x.reshape(len(x), op.groups, -1), (-1, *[1] * (x.ndim - 2))
    g, dx, others = (dy * w["weight"].reshape(shape)).reshape(rows.shape), np.zeros(rows.shape), (0, *range(2, x.ndim))
    hat = np.zeros(rows.shape)
    for at in np.ndindex(*rows.shape[:2]):  # by the Jacobian of each row
        row, size = rows[at], rows.shape[2]
        deviation, s = row - row.mean(), np.sqrt(row.var() + op.epsilon)
        hat[at] = deviation / s
        dx[at] = ((np.eye(size) - 1 / size) / s - np.outer(deviation, deviation) / (size * s**3)) @ g[at]
    return [dx.reshape(x.shape)], {"weight": (dy * hat.reshape(x.shape)).sum(others), "bias": dy.sum(others)}


def lengths(op: ops.GroupNorm, shapes: Shapes) -> Lengths:
    (x,) = shapes
    return prod(x[1:]) // op.groups, prod(x[1:]) // op.groups, prod(x) // x[1]


def by_torch(op: ops.GroupNorm, torch: Any, x: Any, weight: Any, bias: Any) -> Any:
    """PyTorch's refuses to train on one value a group; ours gives its bias."""
    y = torch.nn.functional.group_norm(torch.cat([x, x], 0), op.groups, weight, bias, op.epsilon)
    return y[: len(x)]


CHECKED = (
    Checked(
        op=ops.GroupNorm,
        cases=[Case(ops.GroupNorm(2, 1e-5), ((3, 4, 2, 3),)), Case(ops.GroupNorm(3, 1e-2), ((4, 6),), id="features")],
        large=[Case(ops.GroupNorm(3, 1e-5), (IMAGE,))],
        random=norms(),
        plain=(plain, back),
        torch=by_torch,
        lengths=lengths,
        looser=Looser(10, "as sum, divided by a deviation of sqrt(epsilon) = 0.1 or more"),
        lacking=("cuda",),
    ),
)
