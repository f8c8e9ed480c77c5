"""Transposed convolution."""

from math import prod

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Array
from tests.kernels.cases import INITIAL, Case
from tests.kernels.checked import IMAGE, SUM, Checked, Lengths, Shapes


@st.composite
def layers(draw: st.DrawFn) -> Case:
    kernel, stride = draw(st.tuples(*[st.integers(1, 4)] * 2)), draw(st.tuples(*[st.integers(1, 3)] * 2))
    padding = draw(st.tuples(*[st.integers(0, 2)] * 2))
    more = (draw(st.integers(0, stride[0] - 1)), draw(st.integers(0, stride[1] - 1)))
    dilation, groups = draw(st.tuples(*[st.integers(1, 2)] * 2)), draw(st.sampled_from([1, 1, 2, 3]))
    channels = st.one_of(st.integers(1, 5), st.sampled_from([16, 20]))
    units, c = draw(st.tuples(channels, channels))
    window, settings = (kernel, stride, padding), (draw(st.booleans()), INITIAL, groups, dilation)
    op = ops.ConvTranspose2d(groups * units, *window, *settings, output_padding=more)
    return Case(op, ((draw(st.integers(1, 3)), groups * c, *draw(st.tuples(*[st.integers(1, 6)] * 2))),))


def possible(case: Case) -> bool:
    try:
        return bool(case.op.infer(*case.shapes))
    except ShapeError:
        return False


def terms(op: ops.ConvTranspose2d, x: Array):
    """Of every product: the places in x, weight and y."""
    rows, columns = op.infer(x.shape)[2:]
    own, (down, across) = op.channels // op.groups, op.dilation
    for n, c, i, j in np.ndindex(*x.shape):
        first = c // (x.shape[1] // op.groups) * own
        for o, a, b in np.ndindex(own, *op.kernel):
            row, column = i * op.stride[0] + a * down - op.padding[0], j * op.stride[1] + b * across - op.padding[1]
            if 0 <= row < rows and 0 <= column < columns:
                yield (n, c, i, j), (c, o, a, b), (n, first + o, row, column)


def plain(op: ops.ConvTranspose2d, x: Array, w) -> Array:
    y = np.zeros(op.infer(x.shape))
    if op.bias:
        y += w["bias"][:, None, None]
    for source, weight, target in terms(op, x):
        y[target] += x[source] * w["weight"][weight]
    return y


def by_torch(op: ops.ConvTranspose2d, torch, x, weight, bias=None):
    window = (op.stride, op.padding, op.output_padding, op.groups, op.dilation)
    return torch.nn.functional.conv_transpose2d(x, weight, bias, *window)


def lengths(op: ops.ConvTranspose2d, shapes: Shapes) -> Lengths:
    (x,) = shapes
    area = prod(op.kernel)
    return x[1] // op.groups * area, op.channels // op.groups * area, prod(op.infer(x)) // op.channels


CHECKED = (
    Checked(
        op=ops.ConvTranspose2d,
        cases=[
            Case(ops.ConvTranspose2d(3, (2, 2), (2, 2), (0, 0), True, INITIAL), ((2, 2, 3, 4),)),
            Case(
                ops.ConvTranspose2d(2, (3, 4), (2, 3), (1, 0), False, INITIAL, output_padding=(1, 2)),
                ((1, 3, 3, 2),),
                id="paddings, no bias",
            ),
            Case(
                ops.ConvTranspose2d(4, (2, 3), (1, 2), (1, 1), True, INITIAL, 2, (2, 1)),
                ((1, 6, 4, 3),),
                id="groups, dilation",
            ),
        ],
        large=[Case(ops.ConvTranspose2d(4, (3, 3), (2, 2), (1, 1), True, INITIAL, output_padding=(1, 1)), (IMAGE,))],
        random=layers().filter(possible),
        plain=plain,
        torch=by_torch,
        lengths=lengths,
        looser=SUM,
        lacking=("cuda",),
    ),
)
