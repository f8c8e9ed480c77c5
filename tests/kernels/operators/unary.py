"""Elementary functions, element by element; some of numbers above 0 only, where they are not defined below."""

from __future__ import annotations

import numpy as np

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, Looser, N, elementwise
from tests.kernels.draw import one


def silu(op, x: float) -> float:
    return float(x / (1 + np.exp(-x)))


def checked(op, plain, looser: Looser | None = None, positive: bool = False) -> Checked:
    return Checked(
        op=type(op),
        cases=[Case(op, ((4, 5),), positive=positive), Case(op, ((2, 3, 2),), id="image", positive=positive)],
        large=[Case(op, ((N, 5),), positive=positive)],
        random=one(op, positive=positive),
        plain=plain,
        looser=looser,
    )


CHECKED = (
    checked(ops.Negative(), elementwise(lambda op, x: -x)),
    checked(ops.Abs(), elementwise(lambda op, x: np.abs(x))),
    checked(ops.Exp(), elementwise(lambda op, x: float(np.exp(x)))),
    checked(
        ops.Log(),
        elementwise(lambda op, x: float(np.log(x))),
        Looser(1, "it goes through 0, where x is rounded"),
        positive=True,
    ),
    checked(ops.Sqrt(), elementwise(lambda op, x: x**0.5), positive=True),
    checked(
        ops.Silu(),
        elementwise(silu),
        Looser(1, "its slope goes through 0, and 1 - s comes near it"),
    ),
)
