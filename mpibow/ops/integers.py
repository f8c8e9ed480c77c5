"""Arithmetic of integers (int32) and bools: numbers of tokens, positions, masks. It has no gradient."""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import EVERY, Array, Kernel, Op, Shape, Tensor, runs

from .arithmetic import broadcast
from .cast import cast
from .reshape import reshape

__all__ = ["IntegerOperation", "IntegerReduction"]

FROM_START = "from start"  # places along an axis of x1 elements, those below 0 from its end
FUNCTIONS: dict[str, np.ufunc] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.remainder, "&": np.bitwise_and,
    "|": np.bitwise_or, "^": np.bitwise_xor, "max": np.maximum, "min": np.minimum,
    FROM_START: np.remainder,
}  # fmt: skip
LOGICAL = ("&", "|", "^")


class IntegerOperation(Op):
    """y = x0 `sign` x1: int32, or bool of two bools."""

    sign: str
    kind = "integer"
    differentiable = None
    integers = EVERY
    flat = EVERY

    def infer(self, *shapes: Shape) -> Shape:
        if self.sign not in FUNCTIONS or len(shapes) != 2 or shapes[0] != shapes[1]:
            raise ShapeError(f"there must be two inputs of one shape, and a sign of {[*FUNCTIONS]}")
        return shapes[0]

    def dtype(self, *dtypes: str) -> str:
        return "bool" if {*dtypes} == {"bool"} else "int32"


class IntegerReduction(Op):
    """y = the elements of x along `axis` combined by `sign`; `running`: each with all before it."""

    sign: str
    axis: int
    running: bool = False
    kind = "integer_reduction"
    differentiable = None
    integers = EVERY
    flat = EVERY

    def infer(self, x: Shape) -> Shape:
        if self.sign not in FUNCTIONS or not 0 <= self.axis < len(x):
            raise ShapeError(f"axis {self.axis} must be one of the input's {len(x)}, the sign one of {[*FUNCTIONS]}")
        return x if self.running else (*x[: self.axis], 1, *x[self.axis + 1 :])

    def dtype(self, *dtypes: str) -> str:
        return dtypes[0]


def integer(x: Tensor, sign: str, y: Tensor) -> Tensor:
    """x `sign` y of integers, broadcast: + - * // % max min, and & | ^, which of two bools give bools.

    // rounds down. A result beyond int32 wraps round, as NumPy's.
    """
    x, y = broadcast(x, y)
    if x.dtype != y.dtype or sign not in LOGICAL:
        x = cast(x, "int32")
        y = cast(y, "int32")
    return IntegerOperation(sign)(x, y)


def integer_reduction(x: Tensor, sign: str, axis: int, *, keepdim: bool = False, running: bool = False) -> Tensor:
    """Integers combined along `axis` by + * max min & or |; `running`: a cumulative sum or the like, of x's shape."""
    at = axis % x.ndim
    if sign not in LOGICAL:
        x = cast(x, "int32")
    y = IntegerReduction(sign, at, running)(x)
    return y if keepdim or running else reshape(y, (*x.shape[:at], *x.shape[at + 1 :]))


# The reference kernels.


@runs
def forward(x: Array, x1: Array, y: Array, sign: str) -> None:
    with np.errstate(all="ignore"):
        FUNCTIONS[sign](x, x1, out=y)


@runs
def reduction_forward(x: Array, y: Array, sign: str, axis: int, running: bool) -> None:
    if running:
        FUNCTIONS[sign].accumulate(x, axis=axis, out=y)
    else:
        FUNCTIONS[sign].reduce(x, axis=axis, keepdims=True, out=y)


KERNELS = {IntegerOperation: Kernel(forward), IntegerReduction: Kernel(reduction_forward)}
