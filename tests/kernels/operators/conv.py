"""Conv: what its tests take."""

from itertools import product
from math import prod

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Array
from tests.kernels.cases import INITIAL, Case
from tests.kernels.checked import IMAGE, SUM, Checked, Lengths, Shapes, Weights
from tests.kernels.draw import (
    channels,
    sides,
)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[ops.Conv2d, tuple[int, ...]]:
    groups = draw(st.sampled_from([1, 1, 1, 2, 4, 16, 32]))
    each = st.integers(1, 2) if groups > 4 else channels
    c, o = draw(each) * groups, draw(each) * groups
    kernel = draw(st.tuples(*[st.integers(1, 5)] * 2))
    stride, dilation = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.tuples(*[st.integers(1, 2)] * 2))
    padding = draw(st.tuples(st.integers(0, kernel[0] // 2 + 1), st.integers(0, kernel[1] // 2 + 1)))
    op = ops.Conv2d(o, kernel, stride, padding, draw(st.booleans()), INITIAL, groups, dilation)
    return op, (draw(st.integers(1, 5)), c, draw(sides) + 2, draw(sides) + 2)


def possible(found: tuple) -> bool:
    """Whether the operator takes such images: some windows are larger."""
    try:
        return bool(found[0].infer(found[1]))
    except ShapeError:
        return False


CONVOLUTIONS = convolutions().filter(possible)


def conv(op: ops.Conv2d, x: Array, w: Weights) -> Array:
    y = np.zeros(op.infer(x.shape))
    for (n, o, i, j), _ in np.ndenumerate(y):
        y[n, o, i, j] = w["bias"][o] if op.bias else 0
        for source, target in conv_terms(op, x.shape, (n, o, i, j)):
            y[n, o, i, j] += x[source] * w["weight"][target]
    return y


def conv_terms(op: ops.Conv2d, shape: tuple[int, ...], at: tuple[int, ...]) -> list[tuple]:
    """Indices into x and weight of the products that make up y[at]."""
    n, o, i, j = at
    terms = []
    channels = shape[1] // op.groups
    first = o // (op.channels // op.groups) * channels
    for c, a, b in product(range(channels), range(op.kernel[0]), range(op.kernel[1])):
        row = i * op.stride[0] + a * op.dilation[0] - op.padding[0]
        column = j * op.stride[1] + b * op.dilation[1] - op.padding[1]
        if 0 <= row < shape[2] and 0 <= column < shape[3]:
            terms.append(((n, first + c, row, column), (o, c, a, b)))
    return terms


def lengths(op: ops.Conv2d, shapes: Shapes) -> Lengths:
    (x, *_), area = shapes, prod(op.kernel)
    y = op.infer(x)
    return x[1] // op.groups * area, op.channels // op.groups * area, y[0] * y[2] * y[3]


CHECKED = (
    Checked(
        op=ops.Conv2d,
        cases=[
            Case(ops.Conv2d(3, (3, 3), (1, 1), (0, 0), True, INITIAL), ((2, 2, 5, 6),)),
            Case(ops.Conv2d(4, (3, 2), (2, 1), (1, 2), True, INITIAL), ((3, 2, 7, 5),), id="stride and padding"),
            Case(ops.Conv2d(2, (1, 1), (2, 2), (0, 0), False, INITIAL), ((1, 3, 4, 4),), id="1x1"),
            Case(ops.Conv2d(1, (4, 4), (3, 3), (0, 0), True, INITIAL), ((2, 1, 9, 9),), id="uncovered border"),
            Case(ops.Conv2d(4, (3, 2), (1, 2), (1, 0), True, INITIAL, 2), ((2, 6, 5, 5),), id="groups"),
            Case(ops.Conv2d(6, (3, 3), (1, 1), (1, 1), False, INITIAL, 3), ((2, 3, 4, 4),), id="depthwise"),
            Case(ops.Conv2d(2, (2, 3), (1, 2), (1, 2), True, INITIAL, 1, (3, 2)), ((2, 3, 6, 7),), id="dilated"),
        ],
        large=[Case(ops.Conv2d(4, (3, 3), (1, 1), (1, 1), True, INITIAL, 2, (2, 1)), (IMAGE,))],
        random=CONVOLUTIONS.map(lambda found: Case(found[0], found[1:])),
        plain=conv,
        lengths=lengths,
        looser=SUM,
        torch=lambda op, torch, x, weight, bias=None: torch.nn.functional.conv2d(
            x, weight, bias, op.stride, op.padding, op.dilation, op.groups
        ),
    ),
)
