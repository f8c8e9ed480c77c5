"""Tensors one after the other: concatenation, stacks, and zeros behind the channels."""

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Call, Moving, Op, Shape, Tensor

from .cast import cast
from .combine import OfSeveral
from .moves import MoveTable, Pairs, axis_in_memory, filled
from .reshape import View, axis_of

__all__ = ["Concat", "PadChannels", "concat", "pad_channels", "stack"]


class Concat(OfSeveral, Moving):
    """y = the x_i one after the other along `axis`."""

    axis: int
    kind = "concat"

    def infer(self, *shapes: Shape) -> Shape:
        if not shapes or len(shapes) != self.inputs:
            raise ShapeError(
                f"there must be {self.inputs} inputs, as many as the operator has, and at least 1, got {len(shapes)}"
            )
        first, axis = shapes[0], self.axis
        if not 0 <= axis < len(first):
            raise ShapeError(f"axis {axis} must be one of the inputs' {len(first)} axes")
        if any((*shape[:axis], *shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]) for shape in shapes):
            raise ShapeError(f"all inputs must have one shape but for axis {axis}")
        return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


class PadChannels(Op):
    """x (n, c, ...) -> (n, channels, ...): x first, zeros after it."""

    channels: int
    kind = "pad_channels"

    def infer(self, x: Shape) -> Shape:
        if len(x) < 2:
            raise ShapeError("input must be (batch, channels, ...)")
        if self.channels < x[1]:
            raise ShapeError(f"channels must be at least the {x[1]} of the input, got {self.channels}")
        return x[0], self.channels, *x[2:]


def concat(x: Tensor, *others: Tensor, axis: int = 1, name: str | None = None) -> Tensor:
    """Joins tensors along `axis`, by default 1, the channels; a negative axis counts from the last.

    If one of them has floats, integers become floats.
    """
    kinds = {each.dtype for each in (x, *others)}
    kind = kinds.pop() if len(kinds) == 1 else FLOAT if FLOAT in kinds else "int32"
    parts = [cast(each, kind) for each in (x, *others)]
    return Concat(len(parts), axis_of(x, axis))(*parts, name=name)


def stack(x: Tensor, *others: Tensor, axis: int = 0, name: str | None = None) -> Tensor:
    """Joins tensors of one shape along a new axis, number `axis` of the result; negative: from the last."""
    at = axis + (x.ndim + 1) * (axis < 0)
    if not 0 <= at <= x.ndim or any(other.shape != x.shape for other in others):
        shapes = ", ".join(str(tensor.shape) for tensor in (x, *others))
        raise ShapeError(f"stack of {shapes}: shapes must be alike, and axis {axis} one of the result's")
    return concat(*(View((*x.shape[:at], 1, *x.shape[at:]))(each) for each in (x, *others)), axis=at, name=name)


def pad_channels(x: Tensor, channels: int, *, name: str | None = None) -> Tensor:
    """x (n, c, ...) -> (n, channels, ...), with zeros after the c channels."""
    return PadChannels(channels)(x, name=name)


# The reference kernels.


def concat_backward(call: Call) -> Pairs:
    parts = _parts(call, call.dy, call.op.axis)[:-1]
    return [(dx, part) for dx, part in zip(call.dx, parts, strict=True) if dx is not None]


def pad_forward(call: Call) -> Pairs:
    here, behind = _parts(call, call.y, 1)
    return [(here, call.x0), filled(behind, 0)]  # every time: others use y's memory between runs


def _parts(call: Call, whole: Array, along: int) -> list[Array]:
    """The views of `whole` that hold the inputs, and the rest behind them."""
    axis = axis_in_memory(call, along)
    return np.split(whole, np.cumsum([x.shape[axis] for x in call.x]).tolist(), axis)


MOVES: MoveTable = {
    Concat: (lambda call: list(zip(_parts(call, call.y, call.op.axis)[:-1], call.x, strict=True)), concat_backward),
    PadChannels: (pad_forward, lambda call: [(call.dx0, _parts(call, call.dy, 1)[0])]),
}
