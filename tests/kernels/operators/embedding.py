"""Rows of a trained table."""

from math import prod

from hypothesis import strategies as st

from mpibow import ops
from tests.kernels.cases import INITIAL, Case
from tests.kernels.checked import SUM, Checked, N
from tests.kernels.draw import labels


@st.composite
def tables(draw: st.DrawFn) -> Case:
    count, width = draw(st.tuples(st.integers(1, 9), st.integers(1, 20)))
    shape = draw(st.one_of(st.tuples(st.integers(1, 9)), st.tuples(st.integers(1, 4), st.integers(1, 6))))
    return Case(ops.Embedding(count, width, INITIAL), (shape,), (draw(labels),), count)


CHECKED = (
    Checked(
        op=ops.Embedding,
        cases=[
            Case(ops.Embedding(5, 3, INITIAL), ((7,),), ("int32",), 5),
            Case(ops.Embedding(4, 2, INITIAL), ((2, 3),), ("int64",), id="sequences"),
        ],
        large=[Case(ops.Embedding(N, 3, INITIAL), ((N,),), ("int32",), N)],
        random=tables(),
        plain=lambda op, x, w: w["weight"][x],
        lengths=lambda op, shapes: (1, 1, prod(shapes[0])),
        looser=SUM,
        lacking=("cuda",),
    ),
)
