"""Orders of elements along an axis, and cumulative sums."""

from __future__ import annotations

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Op, Shape, Tensor
from mpibow.graph.kernel import Call, Kernel, Run
from mpibow.ops.cast import cast

__all__ = ["ArgSort", "CumulativeSum", "argsort", "cumsum"]


class ArgSort(Op):
    """y = the places along `axis` of the elements in rising order, equal ones as they lie: int32."""

    axis: int
    kind = "argsort"
    differentiable = None
    integers = (0,)
    flat = (0,)

    def infer(self, x: Shape) -> Shape:
        if not 0 <= self.axis < len(x):
            raise ShapeError(f"axis {self.axis} must be one of the input's {len(x)}")
        return x

    def dtype(self, *dtypes: str) -> str:
        return "int32"


class CumulativeSum(Op):
    """y = the sum of each element of x and all before it along `axis`."""

    axis: int
    kind = "cumsum"

    def infer(self, x: Shape) -> Shape:
        if not 0 <= self.axis < len(x):
            raise ShapeError(f"axis {self.axis} must be one of the input's {len(x)}")
        return x


def argsort(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """The places along `axis` of the elements in rising order, int32; x[gather] of them is sorted."""
    return x.graph.add(ArgSort(axis % len(x.shape)), x, name=name)


def cumsum(x: Tensor, axis: int, *, name: str | None = None) -> Tensor:
    """The sum of each element and all before it along `axis`."""
    return x.graph.add(CumulativeSum(axis % len(x.shape)), cast(x), name=name)


# The reference kernels.


def argsort_forward(call: Call) -> Run:
    x, y, axis = call.x0, call.y, call.op.axis
    return lambda: np.copyto(y, np.argsort(x, axis=axis, kind="stable"))


def cumsum_forward(call: Call) -> Run:
    x, y, axis = call.x0, call.y, call.op.axis
    return lambda: np.cumsum(x, axis=axis, out=y)


def cumsum_backward(call: Call) -> Run:
    dy, dx, axis = np.flip(call.dy, call.op.axis), np.flip(call.dx0, call.op.axis), call.op.axis
    return lambda: np.cumsum(dy, axis=axis, out=dx)


KERNELS = {
    ArgSort: Kernel(argsort_forward),
    CumulativeSum: Kernel(cumsum_forward, cumsum_backward),
}
