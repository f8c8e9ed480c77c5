"""Batch norm: what its tests take."""

from collections.abc import Callable
from math import prod

from hypothesis import strategies as st

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, SUM, Checked
from tests.kernels.draw import (
    channels,
    images,
)


@st.composite
def batch_norms(draw: st.DrawFn, make: Callable = lambda norm: norm, inputs: int = 1) -> Case:
    """Of more than three values a channel: the variance of two may be next to nothing."""
    features = st.tuples(st.integers(4, 12), channels)
    shapes = st.one_of(images, features).filter(lambda x: prod(x) > 3 * x[1])
    norm = ops.BatchNorm(1e-3, draw(st.sampled_from([0.1, 0.9])), frozen=draw(st.booleans()))
    return Case(make(norm), (draw(shapes),) * inputs)


CHECKED = (
    Checked(
        op=ops.BatchNorm,
        cases=[
            Case(ops.BatchNorm(1e-5, 0.1), ((4, 3, 2, 5),)),
            Case(ops.BatchNorm(1e-3, 0.5), ((6, 4),), id="features"),
            Case(ops.BatchNorm(1e-3, 0.5, frozen=True), ((4, 3, 2, 5),), id="frozen"),
            Case(ops.BatchNorm(1e-3, 0.5, sync="rank"), ((4, 3, 2, 5),), id="of a rank"),
        ],
        large=[Case(ops.BatchNorm(1e-5, 0.1), (IMAGE,))],
        random=batch_norms(),
        lengths=lambda op, shapes: (prod(shapes[0]) // shapes[0][1],) * 3,
        looser=SUM,
    ),
)
