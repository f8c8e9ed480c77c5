"""Parts of tensors: `x[:, 1:]`, and split into several."""

from collections.abc import Sequence

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import Array, Moving, Shape, Tensor

from .moves import MoveTable, filled
from .reshape import axis_of, reshape

__all__ = ["Slice", "Split", "split"]


class Slice(Moving):
    """y = the elements start, start + step, ... below stop along each axis: (start, stop, step) an axis."""

    ranges: tuple[tuple[int, int, int], ...]
    kind = "slice"

    def infer(self, x: Shape) -> Shape:
        made = tuple(len(range(*each)) for each in self.ranges)
        if len(made) != len(x) or any(
            not extent or start < 0 or step < 1 or stop > whole
            for extent, (start, stop, step), whole in zip(made, self.ranges, x, strict=True)
        ):
            raise ShapeError(f"ranges {self.ranges} must be one an axis of {x}, forwards, and none empty")
        return made


class Split(Moving):
    """The parts of x of `sizes` along `axis`, one output each."""

    sizes: tuple[int, ...]
    axis: int
    kind = "split"

    def infer(self, x: Shape) -> Shape:
        return self.outputs(x)[0]

    def outputs(self, x: Shape) -> tuple[Shape, ...]:
        if not 0 <= self.axis < len(x) or sum(self.sizes) != x[self.axis] or min(self.sizes, default=0) < 1:
            raise ShapeError(f"sizes {self.sizes} must be at least 1 and add up to axis {self.axis} of {x}")
        return tuple((*x[: self.axis], size, *x[self.axis + 1 :]) for size in self.sizes)


def split(x: Tensor, sizes: int | Sequence[int], axis: int = 0, *, name: str | None = None) -> tuple[Tensor, ...]:
    """x cut along `axis` into parts of `sizes`; a number is the size of each part, the last may be smaller."""
    at = axis_of(x, axis)
    if isinstance(sizes, int):
        if sizes < 1 or not 0 <= at < x.ndim:
            raise ShapeError(
                f"split of {x.name} {x.shape}: size {sizes} must be at least 1, axis {axis} one of its own"
            )
        sizes = [min(sizes, x.shape[at] - start) for start in range(0, x.shape[at], sizes)]
    return x.graph.add_all(Split(tuple(sizes), at), x, name=name)


def sliced(x: Tensor, index: object) -> Tensor:
    """x[index]: integers, slices forwards, None for a new axis, and one `...`, as NumPy has them."""
    items = list(index) if isinstance(index, tuple) else [index]
    missing = x.ndim - sum(item is not None and item is not Ellipsis for item in items)
    if items.count(Ellipsis) > 1 or missing < 0:
        raise ShapeError(f"{x.name} {x.shape}: it has {x.ndim} axes, an index takes at most that many and one ...")
    if Ellipsis not in items:
        items.append(Ellipsis)
    at = items.index(Ellipsis)
    items[at : at + 1] = [slice(None)] * missing
    ranges = []
    shape = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        extent = x.shape[axis]
        axis += 1
        if isinstance(item, Tensor):
            raise ShapeError(
                f"{x.name} {x.shape}: {item.name} is not an index; mb.gather and mb.embedding take tensors"
            )
        if isinstance(item, slice):
            if item.step is not None and item.step < 0:
                raise ShapeError(f"{x.name} {x.shape}: slices go forwards; mb.flip turns axis {axis - 1} round")
            ranges.append(item.indices(extent))
            shape.append(len(range(*ranges[-1])))
        elif isinstance(item, int | np.integer) and -extent <= item < extent:
            start = int(item) % extent
            ranges.append((start, start + 1, 1))
        else:
            raise ShapeError(f"{x.name} {x.shape}: index {item!r} of axis {axis - 1} must be a slice or within it")
    whole = all(each == (0, extent, 1) for each, extent in zip(ranges, x.shape, strict=True))
    part = x if whole else Slice(tuple(ranges))(x)
    return part if part.shape == tuple(shape) else reshape(part, shape)


# The reference kernels.


def _part(op: Slice, array: Array) -> Array:
    return array[tuple(slice(*each) for each in op.ranges)]


def _parts(op: Split, array: Array) -> list[Array]:
    return np.split(array, np.cumsum(op.sizes)[:-1].tolist(), op.axis)


MOVES: MoveTable = {
    Slice: (
        lambda call: [(call.y, _part(call.op, call.x0))],
        lambda call: [filled(call.dx0, 0), (_part(call.op, call.dx0), call.dy)],
    ),
    Split: (
        lambda call: list(zip(call.ys or (call.y,), _parts(call.op, call.x0), strict=True)),
        lambda call: list(zip(_parts(call.op, call.dx0), call.dys or (call.dy,), strict=True)),
    ),
}
