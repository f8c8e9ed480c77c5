"""Layer, group and RMS norm: what their tests take."""

from collections.abc import Callable
from math import prod

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, Checked, Lengths, Looser, N, Shapes
from tests.kernels.draw import tensors

EPSILON = st.sampled_from([1e-2, 1.0])
LOOSER = Looser(10, "as sum, divided by a deviation of sqrt(epsilon) = 0.1 or more")


def some(axes: int, draw: st.DrawFn, kind: Callable = ops.LayerNorm):
    return kind(draw(st.integers(1, axes)), draw(EPSILON))


@st.composite
def over_axes(draw: st.DrawFn, kind: Callable) -> Case:
    shape = draw(tensors)
    return Case(some(len(shape) - 1, draw, kind), (shape,))


@st.composite
def group_norms(draw: st.DrawFn) -> Case:
    groups, each = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    rest = draw(st.lists(st.integers(1, 6), max_size=2))
    return Case(ops.GroupNorm(groups, draw(EPSILON)), ((draw(st.integers(1, 5)), groups * each, *rest),))


def rows_of(op, x: Array) -> Array:
    """What is normalised together, as rows."""
    size = prod(x.shape[1:]) // op.groups if isinstance(op, ops.GroupNorm) else prod(x.shape[-op.axes :])
    return x.reshape(-1, size)


def spread(op, x: Array, weight: Array) -> Array:
    """A weight beside x's elements."""
    return weight.reshape(-1, *[1] * (x.ndim - 2)) if isinstance(op, ops.GroupNorm) else weight


def deviations(op, row: Array) -> Array:
    return row if isinstance(op, ops.RmsNorm) else row - row.mean(-1, keepdims=True)


def normalised(op, x: Array) -> Array:
    away = deviations(op, rows_of(op, x))
    return (away / np.sqrt((away**2).mean(1, keepdims=True) + op.epsilon)).reshape(x.shape)


def plain(op, x: Array, w) -> Array:
    y = normalised(op, x) * spread(op, x, w["weight"])
    return y + spread(op, x, w["bias"]) if "bias" in w else y


def lengths(op, shapes: Shapes) -> Lengths:
    (x,) = shapes
    rows = rows_of(op, np.zeros(x))
    return rows.shape[1], rows.shape[1], prod(x) // x[1] if isinstance(op, ops.GroupNorm) else len(rows)


CHECKED = (
    Checked(
        op=ops.LayerNorm,
        cases=[Case(ops.LayerNorm(1, 1e-5), ((3, 2, 5),)), Case(ops.LayerNorm(2, 1e-2), ((4, 3, 2),), id="two axes")],
        large=[Case(ops.LayerNorm(2, 1e-5), ((N, 3, 4),))],
        random=over_axes(ops.LayerNorm),
        plain=plain,
        lengths=lengths,
        looser=LOOSER,
    ),
    Checked(
        op=ops.RmsNorm,
        cases=[Case(ops.RmsNorm(1, 1e-5), ((3, 2, 5),)), Case(ops.RmsNorm(2, 1e-2), ((4, 3, 2),), id="two axes")],
        large=[Case(ops.RmsNorm(2, 1e-5), ((N, 3, 4),))],
        random=over_axes(ops.RmsNorm),
        plain=plain,
        lengths=lengths,
        looser=LOOSER,
        lacking=("cuda",),
    ),
    Checked(
        op=ops.GroupNorm,
        cases=[Case(ops.GroupNorm(2, 1e-5), ((3, 4, 2, 3),)), Case(ops.GroupNorm(3, 1e-2), ((4, 6),), id="features")],
        large=[Case(ops.GroupNorm(3, 1e-5), (IMAGE,))],
        random=group_norms(),
        plain=plain,
        lengths=lengths,
        looser=LOOSER,
        lacking=("cuda",),
    ),
)
