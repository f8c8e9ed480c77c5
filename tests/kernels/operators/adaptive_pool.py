"""Adaptive pool: what its tests take."""

import math
from math import ceil, prod

import numpy as np

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, SUM, Checked, Lengths, Shapes
from tests.kernels.draw import (
    images,
    one,
    pairs,
)


def around(op, shape: tuple[int, ...], at: tuple[int, ...]):
    """The index of y[at]'s window in adaptive or global pooling."""
    if len(at) == 2:
        return at
    bounds = []
    for extent, size, i in zip(shape[2:], op.size, at[2:], strict=True):
        bounds.append(slice(math.floor(i * extent / size), math.ceil((i + 1) * extent / size)))
    return (*at[:2], *bounds)


def mean(op, x: Array, w) -> Array:
    y = np.zeros(op.infer(x.shape))
    for at, _ in np.ndenumerate(y):
        y[at] = x[around(op, x.shape, at)].mean()
    return y


def adaptive_lengths(op: ops.AdaptiveAvgPool2d, shapes: Shapes) -> Lengths:
    sees = [ceil(extent / size) + 1 for extent, size in zip(shapes[0][2:], op.size, strict=True)]
    seen = [ceil(size / extent) + 1 for extent, size in zip(shapes[0][2:], op.size, strict=True)]
    return prod(sees), prod(seen), 1


CHECKED = (
    Checked(
        op=ops.AdaptiveAvgPool2d,
        cases=[
            Case(ops.AdaptiveAvgPool2d((2, 3)), ((2, 2, 4, 6),)),
            Case(ops.AdaptiveAvgPool2d((3, 4)), ((2, 2, 5, 3),), id="overlapping, and larger than the image"),
        ],
        large=[Case(ops.AdaptiveAvgPool2d((3, 2)), (IMAGE,))],
        random=pairs.flatmap(lambda size: one(ops.AdaptiveAvgPool2d(size), images)),
        plain=mean,
        lengths=adaptive_lengths,
        looser=SUM,
        torch=lambda op, torch, x: torch.nn.functional.adaptive_avg_pool2d(x, op.size),
    ),
    Checked(
        op=ops.GlobalAvgPool2d,
        cases=[Case(ops.GlobalAvgPool2d(), ((2, 3, 4, 5),))],
        large=[Case(ops.GlobalAvgPool2d(), (IMAGE,))],
        random=one(ops.GlobalAvgPool2d(), images),
        plain=mean,
        lengths=lambda op, shapes: (prod(shapes[0][2:]), 1, 1),
        looser=SUM,
        torch=lambda op, torch, x: x.mean((2, 3)),
    ),
)
