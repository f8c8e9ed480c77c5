"""Tensors one after the other: concatenation, stacks, and zeros behind the channels."""

from collections.abc import Sequence

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
        first = shapes[0]
        axis = self.axis
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


def concat(x: Tensor | Sequence[Tensor], *others: Tensor, axis: int = 1, name: str | None = None) -> Tensor:
    """Joins tensors, or a list of them, along `axis`, by default 1, the channels; a negative one counts from the last.

    If one of them has floats, integers become floats.
    """
    tensors = _listed(x, others)
    kinds = {each.dtype for each in tensors}
    kind = kinds.pop() if len(kinds) == 1 else FLOAT if FLOAT in kinds else "int32"
    parts = [cast(each, kind) for each in tensors]
    return Concat(len(parts), axis_of(parts[0], axis))(*parts, name=name)


def stack(x: Tensor | Sequence[Tensor], *others: Tensor, axis: int = 0, name: str | None = None) -> Tensor:
    """Joins tensors of one shape, or a list of them, along a new axis, number `axis` of the result; negative: from the
    last."""
    tensors = _listed(x, others)
    shape, *rest = (tensor.shape for tensor in tensors)
    at = axis + (len(shape) + 1) * (axis < 0)
    if not 0 <= at <= len(shape) or any(other != shape for other in rest):
        shapes = ", ".join(map(str, (shape, *rest)))
        raise ShapeError(f"stack of {shapes}: shapes must be alike, and axis {axis} one of the result's")
    return concat([View((*shape[:at], 1, *shape[at:]))(each) for each in tensors], axis=at, name=name)


def _listed(x: Tensor | Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    tensors = [*x, *others] if isinstance(x, Sequence) else [x, *others]
    if not tensors or not all(isinstance(each, Tensor) for each in tensors):
        raise ShapeError(f"concat, stack: take tensors or a list of them, and axis by its name, got {tensors}")
    return tensors


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
