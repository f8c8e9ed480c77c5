"""Gelu: what its tests take."""

import math

from hypothesis import strategies as st

from mpibow import ops
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, Looser, N, elementwise
from tests.kernels.draw import (
    one,
)


def gelu(op: ops.Gelu, x: float) -> float:
    if op.tanh:
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * math.erfc(-x / math.sqrt(2))


CHECKED = (
    Checked(
        op=ops.Gelu,
        cases=[
            Case(ops.Gelu(False), ((4, 5),)),
            Case(ops.Gelu(False), ((3, 2000),), id="chunks"),
            Case(ops.Gelu(True), ((4, 5),), id="tanh"),
        ],
        large=[Case(ops.Gelu(False), ((N, 9),)), Case(ops.Gelu(True), ((N, 9),), id="tanh")],
        random=st.booleans().flatmap(lambda tanh: one(ops.Gelu(tanh))),
        plain=elementwise(gelu),
        looser=Looser(1, "its slope P(x) + x P'(x) goes through 0, and 1 + erf or 1 + tanh comes near it"),
    ),
)
