"""Arithmetic of tensors and numbers, with broadcasting."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, SUM, Checked, Looser, N, elementwise
from tests.kernels.draw import one, tensors


@st.composite
def expansions(draw: st.DrawFn) -> Case:
    shape = draw(tensors)
    kept = tuple(1 if draw(st.booleans()) else extent for extent in shape)
    return Case(ops.Expand(shape), (kept[draw(st.integers(0, len(shape) - 1)) :],))


def quotient(op, plain) -> Checked:
    return Checked(
        op=type(op),
        cases=[Case(op, ((3, 4), (3, 4)), positive=True)],
        large=[Case(op, ((N, 5), (N, 5)), positive=True)],
        random=tensors.map(lambda shape: Case(op, (shape, shape), positive=True)),
        plain=plain,
    )


CHECKED = (
    Checked(
        op=ops.Affine,
        cases=[Case(ops.Affine(-0.5, 3.0), ((3, 4),)), Case(ops.Affine(2.0, 0.0), ((2, 3, 2),), id="scale")],
        large=[Case(ops.Affine(2.0, 1.0), ((N, 5),))],
        random=one(ops.Affine(-0.5, 3.0)),
        plain=elementwise(lambda op, x: op.scale * x + op.shift),
        looser=Looser(4, "terms may all but cancel: they are rounded, not their sum"),
    ),
    Checked(
        op=ops.Power,
        cases=[
            Case(ops.Power(2.0), ((3, 4),)),
            Case(ops.Power(-1.0), ((3, 4),), id="reciprocal", positive=True),
            Case(ops.Power(1.5), ((2, 3, 2),), id="broken", positive=True),
        ],
        large=[Case(ops.Power(2.0), ((N, 5),)), Case(ops.Power(-0.5), ((N, 5),), id="broken", positive=True)],
        random=st.sampled_from([2.0, 3.0, -1.0, 0.5]).flatmap(lambda e: one(ops.Power(e), positive=True)),
        plain=elementwise(lambda op, x: x**op.exponent),
    ),
    quotient(ops.Divide(), lambda op, a, b, w: a / b),
    quotient(ops.Remainder(), lambda op, a, b, w: a % b),
    Checked(
        op=ops.DivideBy,
        cases=[Case(ops.DivideBy(-41.0), ((3, 4),))],
        large=[Case(ops.DivideBy(0.1), ((N, 5),))],
        random=one(ops.DivideBy(3.0)),
        plain=elementwise(lambda op, x: x / op.number),
    ),
    Checked(
        op=ops.Expand,
        cases=[
            Case(ops.Expand((3, 4)), ((4,),)),
            Case(ops.Expand((2, 3, 4)), ((2, 1, 4),), id="inside"),
            Case(ops.Expand((2, 3, 2, 2)), ((3, 1, 1),), id="in front and behind"),
        ],
        large=[Case(ops.Expand(IMAGE), ((N, 6, 1, 1),)), Case(ops.Expand((N, 5)), ((5,),), id="in front")],
        random=expansions(),
        plain=lambda op, x, w: np.broadcast_to(x, op.shape),
        lengths=lambda op, shapes: (1, max(1, int(np.prod(op.shape)) // int(np.prod(shapes[0]))), 1),
        looser=SUM,
        lacking=("cuda",),
    ),
)
