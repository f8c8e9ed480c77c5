"""Functions of one element, without settings or with one: what their tests take."""

import math

from hypothesis import strategies as st

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, Looser, N, elementwise
from tests.kernels.draw import one

ZERO = "it goes through 0, where x or a term is rounded"


def checked(op, plain, looser: str = "", *, positive: bool = False, torch=None, lacking=()) -> Checked:
    """Of numbers above 0 only where it is not defined below."""
    return Checked(
        op=type(op),
        cases=[Case(op, ((4, 5),), positive=positive), Case(op, ((2, 3, 2),), id="image", positive=positive)],
        large=[Case(op, ((N, 5),), positive=positive)],
        random=one(op, positive=positive),
        plain=elementwise(lambda op, x: plain(x)),
        torch=torch,
        looser=Looser(1, looser) if looser else None,
        lacking=lacking,
    )


def named(op, plain, **more) -> Checked:
    """Of PyTorch's name."""
    return checked(op, plain, ZERO, torch=lambda op, torch, x: getattr(torch, op.kind)(x), **more)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


CHECKED = (
    checked(ops.Relu(), lambda x: max(x, 0)),
    checked(ops.Sigmoid(), sigmoid, "backward has 1 - y, of a y that is rounded"),
    checked(ops.Tanh(), math.tanh, "backward has 1 - y^2, of a y that is rounded"),
    checked(ops.Silu(), lambda x: x * sigmoid(x), "its slope goes through 0, and 1 - s comes near it"),
    checked(ops.Softplus(), lambda x: math.log(1 + math.exp(x))),
    checked(ops.Negative(), lambda x: -x),
    checked(ops.Abs(), abs),
    checked(ops.Exp(), math.exp),
    named(ops.Expm1(), math.expm1),
    checked(ops.Log(), math.log, "it goes through 0, where x is rounded", positive=True),
    checked(ops.Sqrt(), math.sqrt, positive=True),
    named(ops.Sin(), math.sin),
    named(ops.Cos(), math.cos),
    named(ops.Floor(), math.floor),
    named(ops.Sign(), lambda x: (x > 0) - (x < 0)),
    named(ops.Log1p(), math.log1p, positive=True),
    named(ops.Erf(), math.erf, lacking=("cuda", "onednn")),
    Checked(
        op=ops.LeakyRelu,
        cases=[Case(ops.LeakyRelu(0.1), ((4, 5),)), Case(ops.LeakyRelu(1.5), ((4, 5),), id="steeper below")],
        large=[Case(ops.LeakyRelu(0.1), ((N, 5),))],
        random=st.sampled_from([0.0, 0.1, 1.5]).flatmap(lambda slope: one(ops.LeakyRelu(slope))),
        plain=elementwise(lambda op, x: x if x > 0 else op.slope * x),
    ),
    Checked(
        op=ops.ClippedRelu,
        cases=[Case(ops.ClippedRelu(0.7), ((4, 9),))],
        large=[Case(ops.ClippedRelu(6.0), ((N, 5),))],
        random=one(ops.ClippedRelu(0.7)),
        plain=elementwise(lambda op, x: min(max(x, 0), op.ceiling)),
    ),
)
