"""Parts of tensors."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, Checked, N
from tests.kernels.draw import tensors

HOST = ("cuda",)


@st.composite
def slices(draw: st.DrawFn) -> Case:
    shape, ranges = draw(tensors), []
    for extent in shape:
        start = draw(st.integers(0, extent - 1))
        ranges.append((start, draw(st.integers(start + 1, extent)), draw(st.integers(1, 3))))
    return Case(ops.Slice(tuple(ranges)), (shape,))


@st.composite
def splits(draw: st.DrawFn) -> Case:
    shape = draw(tensors)
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    return Case(ops.Split(tuple(sizes), axis), ((*shape[:axis], sum(sizes), *shape[axis + 1 :]),))


def sources(op: ops.Slice):
    """Of every element of y, its place in x."""
    for at in np.ndindex(*(len(range(*each)) for each in op.ranges)):
        yield at, tuple(range(*each)[i] for i, each in zip(at, op.ranges, strict=True))


def plain(op: ops.Slice, x: Array, w) -> Array:
    y = np.zeros(op.infer(x.shape))
    for at, source in sources(op):
        y[at] = x[source]
    return y


def first(op: ops.Split, x: Array, w) -> Array:
    return x.take(range(op.sizes[0]), op.axis)


CHECKED = (
    Checked(
        op=ops.Slice,
        cases=[
            Case(ops.Slice(((1, 3, 1), (0, 4, 2))), ((3, 4),)),
            Case(ops.Slice(((0, 2, 1), (2, 3, 1), (0, 4, 3))), ((2, 3, 4),), id="image"),
        ],
        large=[Case(ops.Slice(((0, N, 1), (1, 6, 2), (0, 5, 1), (1, 5, 1))), (IMAGE,))],
        random=slices(),
        plain=plain,
        lacking=HOST,
    ),
    Checked(
        op=ops.Split,
        cases=[Case(ops.Split((2, 1, 3), 1), ((2, 6),)), Case(ops.Split((2,), 0), ((2, 3, 2),), id="one")],
        large=[Case(ops.Split((2, 4), 1), (IMAGE,))],
        random=splits(),
        plain=first,
        lacking=HOST,
    ),
)
