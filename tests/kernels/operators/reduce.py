"""Sums, means and maxima over axes."""

from math import prod

from hypothesis import strategies as st

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, SUM, Checked, Lengths, Shapes
from tests.kernels.draw import Cases, tensors


def reductions(kind) -> Cases:
    @st.composite
    def cases(draw: st.DrawFn) -> Case:
        shape = draw(tensors)
        axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
        return Case(kind(tuple(sorted(axes))), (shape,))

    return cases()


def lengths(op, shapes: Shapes) -> Lengths:
    return prod(shapes[0][axis] for axis in op.axes), 1, 1


def checked(kind, plain) -> Checked:
    return Checked(
        op=kind,
        cases=[Case(kind((1,)), ((3, 4),)), Case(kind((0, 2)), ((2, 3, 4),), id="two axes")],
        large=[Case(kind((1, 3)), (IMAGE,))],
        random=reductions(kind),
        plain=plain,
        lengths=lengths,
        looser=SUM,
        lacking=("cuda",),
    )


CHECKED = (
    checked(ops.ReduceSum, lambda op, x, w: x.sum(op.axes, keepdims=True)),
    checked(ops.ReduceMean, lambda op, x, w: x.mean(op.axes, keepdims=True)),
    checked(ops.ReduceMax, lambda op, x, w: x.max(op.axes, keepdims=True)),
)
