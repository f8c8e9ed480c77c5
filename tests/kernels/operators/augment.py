"""Augment: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, Checked, N, block
from tests.kernels.draw import (
    counted,
    images,
    pixels,
)


def window(draw, shape) -> ops.Augment:
    crop = draw(st.integers(1, shape[2])), draw(st.integers(1, shape[3]))
    return ops.Augment(draw(st.integers(0, min(crop) - 1)), crop, draw(st.booleans()))


@st.composite
def crops(draw: st.DrawFn) -> Case:
    shape = draw(images)
    op = ops.CentreCrop((draw(st.integers(1, shape[2])), draw(st.integers(1, shape[3]))))
    return Case(op, (shape,), (draw(pixels),), 256)


def augment(op: ops.Augment, x: Array, counter: Array, w) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (op.pad, op.pad), (op.pad, op.pad)))
    rows, columns = op.crop
    y = np.zeros(op.infer(x.shape, counter.shape), x.dtype)
    for n, words in enumerate(map(block, counter.tolist())):
        top = words[0] * (padded.shape[2] - rows + 1) // 2**32
        left = words[1] * (padded.shape[3] - columns + 1) // 2**32
        window = padded[n, :, top : top + rows, left : left + columns]
        y[n] = window[:, :, ::-1] if op.flip and words[2] >= 2**31 else window
    return y


def centre_crop(op: ops.CentreCrop, x: Array, w) -> Array:
    y = np.zeros(op.infer(x.shape), x.dtype)
    top, left = ((extent - size) // 2 for extent, size in zip(x.shape[2:], op.crop, strict=True))
    for (n, c, i, j), _ in np.ndenumerate(y):
        y[n, c, i, j] = x[n, c, top + i, left + j]
    return y


def cutout(op: ops.Cutout, x: Array, counter: Array, w) -> Array:
    y = x.copy()
    for n, words in enumerate(map(block, counter.tolist())):
        row, column = words[0] * x.shape[2] // 2**32, words[1] * x.shape[3] // 2**32  # the centre
        for i, j in np.ndindex(*x.shape[2:]):
            rows, columns = i - row + op.length // 2, j - column + op.length // 2
            if 0 <= rows < op.length and 0 <= columns < op.length:
                y[n, :, i, j] = 0
    return y


CHECKED = (
    Checked(
        op=ops.Augment,
        cases=[
            Case(ops.Augment(2, (5, 4), True), ((6, 2, 5, 4), (6, 4)), ("uint8", "uint32"), 1 << 32),
            Case(ops.Augment(0, (3, 5), True), ((5, 1, 4, 6), (5, 4)), (FLOAT, "uint32"), 1 << 32, id="crop"),
            Case(
                ops.Augment(1, (2, 2), False), ((4, 3, 4, 4), (4, 4)), ("uint8", "uint32"), 1 << 32, id="pad and crop"
            ),
        ],
        large=[Case(ops.Augment(2, (5, 5), True), (IMAGE, (N, 4)), ("uint8", "uint32"), 200)],
        random=counted(window, "uint8", FLOAT),
        plain=augment,
    ),
    Checked(
        op=ops.CentreCrop,
        cases=[
            Case(ops.CentreCrop((3, 2)), ((2, 2, 6, 5),), ("uint8",), 256),
            Case(ops.CentreCrop((4, 3)), ((2, 1, 4, 3),), id="all of it"),
        ],
        large=[Case(ops.CentreCrop((3, 4)), (IMAGE,), ("uint8",), 200)],
        random=crops(),
        plain=centre_crop,
    ),
    Checked(
        op=ops.Cutout,
        cases=[
            Case(ops.Cutout(3), ((9, 2, 6, 5), (9, 4)), (FLOAT, "uint32"), 1 << 32),
            Case(ops.Cutout(4), ((5, 1, 4, 7), (5, 4)), (FLOAT, "uint32"), 1 << 32, id="even"),
        ],
        large=[Case(ops.Cutout(3), (IMAGE, (N, 4)), (FLOAT, "uint32"), 200)],
        random=counted(lambda draw, shape: ops.Cutout(draw(st.integers(1, 50))), FLOAT),
        plain=cutout,
    ),
)
