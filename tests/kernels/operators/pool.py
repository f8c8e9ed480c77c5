"""Pool: what its tests take."""

from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, SUM, Checked, Weights
from tests.kernels.draw import channels, pairs, sides


@st.composite
def pools(draw: st.DrawFn, largest: bool) -> Case:
    kernel, stride = draw(pairs), draw(pairs)
    padding = draw(st.tuples(st.integers(0, kernel[0] // 2), st.integers(0, kernel[1] // 2)))
    window = kernel, stride, padding, draw(st.booleans())
    op = ops.MaxPool2d(*window) if largest else ops.AvgPool2d(*window, draw(st.booleans()))
    return Case(op, ((draw(st.integers(1, 3)), draw(channels), draw(sides) + 3, draw(sides) + 3),))


def windows(op: ops.MaxPool2d | ops.AvgPool2d, shape: tuple[int, ...], at: tuple[int, ...]) -> list:
    """Indices of the elements of y[at]'s window that are inside the image, row by row."""
    n, c, i, j = at
    top, left = i * op.stride[0] - op.padding[0], j * op.stride[1] - op.padding[1]
    elements = product(range(top, top + op.kernel[0]), range(left, left + op.kernel[1]))
    return [(n, c, a, b) for a, b in elements if 0 <= a < shape[2] and 0 <= b < shape[3]]


def counted(op: ops.AvgPool2d, shape: tuple[int, ...], at: tuple[int, ...]) -> int:
    """How many elements the mean of y[at]'s window is of."""
    if not op.count_padding:
        return len(windows(op, shape, at))
    wide = replace(op, padding=(0, 0))  # the same windows over an image that has its padding
    return len(windows(wide, (*shape[:2], shape[2] + 2 * op.padding[0], shape[3] + 2 * op.padding[1]), at))


def max_pool(op: ops.MaxPool2d, x: Array, w: Weights) -> Array:
    y = np.zeros(op.infer(x.shape))
    for at, _ in np.ndenumerate(y):
        y[at] = max(x[element] for element in windows(op, x.shape, at))
    return y


def avg_pool(op: ops.AvgPool2d, x: Array, w: Weights) -> Array:
    y = np.zeros(op.infer(x.shape))
    for at, _ in np.ndenumerate(y):
        elements = windows(op, x.shape, at)
        y[at] = sum(x[element] for element in elements) / counted(op, x.shape, at)
    return y


CHECKED = (
    Checked(
        op=ops.MaxPool2d,
        cases=[
            Case(ops.MaxPool2d((2, 2), (2, 2)), ((2, 3, 6, 4),)),
            Case(ops.MaxPool2d((3, 2), (2, 1)), ((2, 2, 8, 5),), id="overlapping, uncovered border"),
            Case(ops.MaxPool2d((3, 3), (2, 2), (1, 1)), ((2, 2, 7, 6),), id="padding"),
            Case(ops.MaxPool2d((3, 2), (2, 2), (0, 1), True), ((2, 2, 6, 5),), id="padding and ceil"),
            Case(ops.MaxPool2d((3, 4), (2, 3), (0, 0), True), ((1, 2, 2, 8),), id="a window larger than the image"),
        ],
        large=[Case(ops.MaxPool2d((3, 3), (2, 2), (1, 1), True), (IMAGE,))],
        random=pools(True),
        plain=max_pool,
        lengths=lambda op, shapes: (prod(op.kernel), prod(op.kernel), 1),
        looser=SUM,
        torch=lambda op, torch, x: torch.nn.functional.max_pool2d(
            x, op.kernel, op.stride, op.padding, ceil_mode=op.ceil
        ),
    ),
    Checked(
        op=ops.AvgPool2d,
        cases=[
            Case(ops.AvgPool2d((2, 2), (2, 2)), ((2, 3, 6, 4),)),
            Case(ops.AvgPool2d((3, 3), (2, 2)), ((1, 2, 8, 7),), id="overlapping"),
            Case(ops.AvgPool2d((3, 3), (2, 2), (1, 1)), ((2, 2, 6, 7),), id="padding"),
            Case(ops.AvgPool2d((3, 2), (2, 2), (1, 1), True), ((2, 2, 6, 6),), id="padding and ceil"),
            Case(ops.AvgPool2d((3, 3), (2, 2), (1, 1), True, False), ((1, 2, 6, 5),), id="padding not counted"),
        ],
        large=[Case(ops.AvgPool2d((3, 3), (2, 2), (1, 1), True, False), (IMAGE,))],
        random=pools(False),
        plain=avg_pool,
        lengths=lambda op, shapes: (prod(op.kernel), prod(op.kernel), 1),
        looser=SUM,
        torch=lambda op, torch, x: torch.nn.functional.avg_pool2d(
            x, op.kernel, op.stride, op.padding, op.ceil, op.count_padding
        ),
    ),
)
