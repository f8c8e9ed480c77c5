"""Arithmetic of integers and bools, and their reductions."""

import operator

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N
from tests.kernels.draw import tensors

BY_SIGN = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
SAFE = [sign for sign in BY_SIGN if sign not in ("//", "%")]  # by 0, they give anything
UFUNCS = {"+": np.add, "max": np.maximum, "min": np.minimum, "&": np.bitwise_and, "|": np.bitwise_or}


def reduced(op: ops.IntegerReduction, x: Array, w) -> Array:
    function = UFUNCS[op.sign]
    return np.asarray(function.accumulate(x, op.axis) if op.running else function.reduce(x, op.axis, keepdims=True))


def by_torch(op: ops.IntegerReduction, torch, x):
    if op.running:
        return x.cumsum(op.axis).int()
    names = {"+": "sum", "max": "amax", "min": "amin", "&": "all", "|": "any"}
    return getattr(torch, names[op.sign])(x, dim=op.axis, keepdim=True).to(x.dtype)


CHECKED = (
    Checked(
        op=ops.IntegerOperation,
        cases=[
            *(Case(ops.IntegerOperation(sign), ((3, 4),) * 2, ("int32",), id=sign) for sign in SAFE),
            Case(ops.IntegerOperation("&"), ((3, 4),) * 2, ("bool",), 2, id="bools"),
        ],
        large=[Case(ops.IntegerOperation("+"), ((N, 5),) * 2, ("int32",))],
        random=st.builds(
            lambda sign, shape: Case(ops.IntegerOperation(sign), (shape,) * 2, ("int32",), 1000),
            st.sampled_from(SAFE),
            tensors,
        ),
        plain=lambda op, x, y, w: np.asarray(BY_SIGN[op.sign](x, y)),
        torch=lambda op, torch, x, y: (
            torch.maximum(x, y) if op.sign == "max" else torch.minimum(x, y) if op.sign == "min"
            else BY_SIGN[op.sign](x, y)
        ),
        lacking=("cuda", "onednn"),
    ),
    Checked(
        op=ops.IntegerReduction,
        cases=[
            *(Case(ops.IntegerReduction(sign, 1), ((3, 4),), ("int32",), id=sign) for sign in ("+", "max", "min")),
            *(Case(ops.IntegerReduction(sign, 0), ((3, 4),), ("bool",), 2, id=sign) for sign in "&|"),
            Case(ops.IntegerReduction("+", 1, running=True), ((3, 4, 2),), ("int32",), id="running"),
        ],
        large=[Case(ops.IntegerReduction("+", 1), ((N, 5),), ("int32",))],
        random=tensors.map(lambda shape: Case(ops.IntegerReduction("+", len(shape) - 1), (shape,), ("int32",), 1000)),
        plain=reduced,
        torch=by_torch,
        lacking=("cuda", "onednn"),
    ),
)  # fmt: skip
