"""Orders of elements along an axis, cumulative sums, and sums by places."""

from __future__ import annotations

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import Moving, Op, Shape, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
from mpibow.ops.cast import cast
from mpibow.ops.choose import scatter, starts_of

__all__ = ["ArgSort", "CumulativeSum", "ScatterAdd", "argsort", "cumsum", "scatter_add"]


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


class ScatterAdd(Moving):
    """y (`shape`) = 0, and at places x1 along `axis` the sum of the elements of x0 that are to lie there.

    It is the gradient of Gather, and has it as its gradient. Places outside take the nearest element.
    """

    axis: int
    shape: Shape
    kind = "scatter_add"
    differentiable = (0,)

    def infer(self, x: Shape, index: Shape) -> Shape:
        others = [(i, n) for axis, (i, n) in enumerate(zip(index, self.shape, strict=False)) if axis != self.axis]
        if x != index or len(self.shape) != len(x) or not 0 <= self.axis < len(x) or any(i > n for i, n in others):
            raise ShapeError(f"input and index must have one shape, with no axis longer than in {self.shape}")
        return self.shape


def argsort(x: Tensor, axis: int = -1, *, name: str | None = None) -> Tensor:
    """The places along `axis` of the elements in rising order, int32; x[gather] of them is sorted."""
    return x.graph.add(ArgSort(axis % len(x.shape)), x, name=name)


def cumsum(x: Tensor, axis: int, *, name: str | None = None) -> Tensor:
    """The sum of each element and all before it along `axis`."""
    return x.graph.add(CumulativeSum(axis % len(x.shape)), cast(x), name=name)


def scatter_add(x: Tensor, axis: int, index: Tensor, shape: Shape, *, name: str | None = None) -> Tensor:
    """Zeros of `shape` with the elements of x added at places `index` along `axis`, as in PyTorch's scatter_add."""
    return x.graph.add(ScatterAdd(axis % len(x.shape), tuple(shape)), x, index, name=name)


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


def scatter_buffers(op: ScatterAdd, shapes: Shapes) -> Buffers:
    return Buffers(saved={"place": (shapes.x[1], "int64")})


def scatter_forward(call: Call) -> Run:
    (x, index), y, place = call.x, call.y, call.saved["place"]
    starts, step = starts_of(call.op.axis, y.shape, index.shape)
    last, flat = y.shape[call.op.axis] - 1, y.reshape(-1)

    def run() -> None:
        nonlocal place
        np.clip(index, 0, last, out=place, casting="unsafe")
        place *= step
        place += starts
        scatter(x.reshape(-1), place.reshape(-1), flat)

    return run


def scatter_backward(call: Call) -> Run:
    dy, dx, place = call.dy.reshape(-1), call.dx0, call.saved["place"]
    return lambda: dy.take(place, out=dx, mode="clip")


KERNELS = {
    ArgSort: Kernel(argsort_forward),
    CumulativeSum: Kernel(cumsum_forward, cumsum_backward),
    ScatterAdd: Kernel(scatter_forward, scatter_backward, scatter_buffers),
}
