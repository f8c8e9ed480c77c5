"""Comparison, where, cast and gather: numbers that choose others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Array, Op, Shape, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec
from mpibow.ops.arithmetic import broadcast

__all__ = ["Cast", "Compare", "Gather", "Where", "cast", "eq", "gather", "ge", "gt", "le", "lt", "ne", "where"]

SIGNS = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal
}  # fmt: skip


@dataclass(frozen=True)
class Compare(Op):
    """y = whether x0 `sign` x1, or x0 `sign` number where there is no x1: bool."""

    sign: str
    number: float | None = None
    kind: ClassVar[str] = "compare"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        if self.sign not in SIGNS or len(shapes) != 1 + (self.number is None) or len(set(shapes)) != 1:
            raise ShapeError(f"there must be two inputs of one shape, or one and a number, and a sign of {[*SIGNS]}")
        return shapes[0]

    def dtype(self, *dtypes: str) -> str:
        return "bool"


@dataclass(frozen=True)
class Where(Op):
    """y = x1 where x0 is not 0, else x2."""

    kind: ClassVar[str] = "where"
    reads: ClassVar[frozenset[str]] = frozenset("x")
    differentiable: ClassVar[tuple[int, ...] | None] = (1, 2)

    def infer(self, *shapes: Shape) -> Shape:
        if len(shapes) != 3 or len(set(shapes)) != 1:
            raise ShapeError("there must be three inputs of one shape")
        return shapes[0]


@dataclass(frozen=True)
class Cast(Op):
    """y = x as `to`: FLOAT, of the plan's precision, or a NumPy name. It has no gradient."""

    to: str
    kind: ClassVar[str] = "cast"
    differentiable: ClassVar[tuple[int, ...] | None] = None

    def infer(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def dtype(self, *dtypes: str) -> str:
        return self.to


@dataclass(frozen=True)
class Gather(Op):
    """y[..., i, ...] = x[..., index[..., i, ...], ...] along `axis`; indices outside take the nearest element."""

    axis: int
    kind: ClassVar[str] = "gather"

    def infer(self, *shapes: Shape) -> Shape:
        x, index = shapes
        others = [(i, n) for axis, (i, n) in enumerate(zip(index, x, strict=False)) if axis != self.axis]
        if len(x) != len(index) or not 0 <= self.axis < len(x) or any(i > n for i, n in others):
            raise ShapeError(f"the index must have the input's axes, none longer but for axis {self.axis}")
        return index


def _compare(sign: str, x: Tensor, y: Tensor | float, name: str | None) -> Tensor:
    if isinstance(y, Tensor):
        x, y = broadcast(x, y)
        return x.graph.add(Compare(sign), x, y, name=name)
    return x.graph.add(Compare(sign, float(y)), x, name=name)


def lt(x: Tensor, y: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether x < y, element by element, broadcast: bool."""
    return _compare("<", x, y, name)


def le(x: Tensor, y: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether x <= y, as `lt`."""
    return _compare("<=", x, y, name)


def gt(x: Tensor, y: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether x > y, as `lt`."""
    return _compare(">", x, y, name)


def ge(x: Tensor, y: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether x >= y, as `lt`."""
    return _compare(">=", x, y, name)


def eq(x: Tensor, y: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether x == y, as `lt`."""
    return _compare("==", x, y, name)


def ne(x: Tensor, y: Tensor | float, *, name: str | None = None) -> Tensor:
    """Whether x != y, as `lt`."""
    return _compare("!=", x, y, name)


def where(condition: Tensor, x: Tensor, y: Tensor, *, name: str | None = None) -> Tensor:
    """x where condition is not 0, else y, broadcast."""
    return x.graph.add(Where(), *broadcast(condition, x, y), name=name)


def cast(x: Tensor, dtype: str = FLOAT, *, name: str | None = None) -> Tensor:
    """x as `dtype`: "float", of the plan's precision, or a NumPy name such as "int32". No gradient passes."""
    return x.graph.add(Cast(dtype), x, name=name)


def gather(x: Tensor, axis: int, index: Tensor, *, name: str | None = None) -> Tensor:
    """The elements of x along `axis` that `index` numbers: of index's shape, as PyTorch's gather."""
    return x.graph.add(Gather(axis + len(x.shape) * (axis < 0)), x, index, name=name)


# The reference kernels.


def compare_forward(call: Call) -> Run:
    x, y, compare = call.x[0], call.y, SIGNS[call.op.sign]
    other = call.x[1] if call.op.number is None else x.dtype.type(call.op.number)

    def run() -> None:
        compare(x, other, out=y)

    return run


def where_buffers(op: Where, shapes: Shapes) -> Buffers:
    mask: dict[str, Spec] = {"mask": (shapes.y, "bool")}
    return Buffers(forward=mask, backward=mask)


def where_forward(call: Call) -> Run:
    (condition, x1, x2), y, mask = call.x, call.y, call.scratch["mask"]

    def run() -> None:
        np.not_equal(condition, 0, out=mask)
        np.copyto(y, x2)
        np.copyto(y, x1, where=mask)

    return run


def where_backward(call: Call) -> Run:
    condition, dy, (_, d1, d2), mask = call.x[0], call.dy, call.dx, call.scratch["mask"]

    def run() -> None:
        np.not_equal(condition, 0, out=mask)
        if d1 is not None:
            np.multiply(dy, mask, out=d1)
        if d2 is not None:
            np.logical_not(mask, out=mask)
            np.multiply(dy, mask, out=d2)

    return run


def cast_forward(call: Call) -> Run:
    x, y = call.x[0], call.y

    def run() -> None:
        np.copyto(y, x, casting="unsafe")

    return run


def gather_buffers(op: Gather, shapes: Shapes) -> Buffers:
    kept: dict[str, Spec] = {"place": (shapes.y, "int64")}
    return Buffers(saved=kept) if shapes.training else Buffers(forward=kept)


def _starts(axis: int, x: Shape, index: Shape) -> tuple[Array, int]:
    """Where in flat x the line of each element begins, and how far apart its elements are."""
    strides = [int(np.prod(x[i + 1 :])) for i in range(len(x))]
    places = np.indices(index)
    starts = sum(stride * places[i] for i, stride in enumerate(strides) if i != axis)
    return np.broadcast_to(starts, index).astype(np.int64), strides[axis]


def gather_forward(call: Call) -> Run:
    (x, index), y, place = call.x, call.y, call.buffer("place")
    starts, step = _starts(call.op.axis, x.shape, index.shape)
    last, flat = x.shape[call.op.axis] - 1, x.reshape(-1)

    def run() -> None:
        np.clip(index, 0, last, out=place, casting="unsafe")
        np.multiply(place, step, out=place)
        np.add(place, starts, out=place)
        flat.take(place, out=y, mode="clip")

    return run


def gather_backward(call: Call) -> Run:
    dy, dx, place = call.dy.reshape(-1), call.dx[0], call.saved["place"].reshape(-1)
    assert dx is not None
    flat = dx.reshape(-1)

    def run() -> None:
        flat.fill(0)
        for n in range(len(place)):  # one by one, as an element may be named twice
            flat[place[n]] += dy[n]

    return run


KERNELS: KernelTable = {
    Cast: Kernel(cast_forward),
    Compare: Kernel(compare_forward),
    Gather: Kernel(gather_forward, gather_backward, gather_buffers),
    Where: Kernel(where_forward, where_backward, where_buffers),
}
