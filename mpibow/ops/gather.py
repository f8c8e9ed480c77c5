"""Elements along an axis taken by their places, and added up at places: each is the other's gradient."""

from collections.abc import Callable

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Kernel, Moving, Run, Shape, Shapes, Tensor, binds, runs

from .reshape import axis_of

__all__ = ["Gather", "ScatterAdd", "gather", "scatter_add"]


def _fits(index: Shape, table: Shape, axis: int) -> bool:
    """Whether the index has the table's axes, none longer but for `axis`."""
    sides = enumerate(zip(index, table, strict=False))
    return len(index) == len(table) > axis >= 0 and all(i <= n or at == axis for at, (i, n) in sides)


def _integers(index: Tensor) -> Tensor:
    if index.dtype == FLOAT:
        raise ShapeError(f"{index.name}: positions must be integers, it is of floats")
    return index


class Gather(Moving):
    """y[..., i, ...] = x[..., index[..., i, ...], ...] along `axis`; indices outside take the nearest element."""

    axis: int
    kind = "gather"

    def infer(self, x: Shape, index: Shape) -> Shape:
        if not _fits(index, x, self.axis):
            raise ShapeError(f"the index must have the input's axes, none longer but for axis {self.axis}")
        return index


class ScatterAdd(Moving):
    """y (`shape`) = 0, and at places x1 along `axis` the sum of the elements of x0 that are to lie there.

    Places outside take the nearest element.
    """

    axis: int
    shape: Shape
    kind = "scatter_add"
    differentiable = (0,)

    def infer(self, x: Shape, index: Shape) -> Shape:
        if x != index or not _fits(index, self.shape, self.axis):
            raise ShapeError(f"input and index must have one shape, with no axis longer than in {self.shape}")
        return self.shape


def gather(x: Tensor, axis: int, index: Tensor, *, name: str | None = None) -> Tensor:
    """The elements of x at positions `index` along `axis`; the result has index's shape, as in PyTorch's gather.

    Positions are integers in [0, extent); computed ones outside take the nearest element.
    """
    return Gather(axis_of(x, axis))(x, _integers(index), name=name)


def scatter_add(x: Tensor, axis: int, index: Tensor, shape: Shape, *, name: str | None = None) -> Tensor:
    """Zeros of `shape` with the elements of x added at places `index` along `axis`, as in PyTorch's scatter_add."""
    return ScatterAdd(axis_of(x, axis), tuple(shape))(x, _integers(index), name=name)


# The reference kernels: forward saves the places in the flat table, which backward takes again.


def starts_of(axis: int, x: Shape, index: Shape) -> tuple[Array, int]:
    """The place in flat x at which the line of each element begins, and the distance between its elements."""
    strides = [int(np.prod(x[i + 1 :])) for i in range(len(x))]
    places = np.indices(index)
    starts = sum(stride * places[i] for i, stride in enumerate(strides) if i != axis)
    return np.broadcast_to(starts, index).astype(np.int64), strides[axis]


def buffers(op: Gather | ScatterAdd, shapes: Shapes) -> Buffers:
    return Buffers(saved={"place": (shapes.x[1], "int64")})


def _finding(axis: int, table: Shape, index: Array, place: Array) -> Callable[[], Array]:
    """Fills the places of the index in the flat table, and returns them."""
    starts, step = starts_of(axis, table, index.shape)
    return lambda: np.add(
        np.multiply(np.clip(index, 0, table[axis] - 1, out=place, casting="unsafe"), step, out=place), starts, out=place
    )


def scatter(rows: Array, index: Array, table: Array) -> None:
    """table <- 0, then table[index[n]] += rows[n]: one by one, as a row may be named twice (np.add.at allocates)."""
    table.fill(0)
    if table.ndim == 2:
        for n in range(len(rows)):
            row = table[index[n]]  # a view: an item's += also copies the row onto itself
            row += rows[n]
        return
    for n in range(len(rows)):
        table[index[n]] += rows[n]


@binds
def gather_forward(x: Array, index: Array, y: Array, place: Array, axis: int) -> Run:
    find = _finding(axis, x.shape, index, place)
    flat = x.reshape(-1)
    return lambda: flat.take(find(), out=y, mode="clip")


@binds
def scatter_forward(x: Array, index: Array, y: Array, place: Array, axis: int) -> Run:
    find = _finding(axis, y.shape, index, place)
    rows = x.reshape(-1)
    return lambda: scatter(rows, find().reshape(-1), y.reshape(-1))


KERNELS = {
    Gather: Kernel(
        gather_forward, runs(lambda dy, dx, place: scatter(dy.reshape(-1), place.reshape(-1), dx.reshape(-1))), buffers
    ),
    ScatterAdd: Kernel(
        scatter_forward, runs(lambda dy, dx, place: dy.reshape(-1).take(place, out=dx, mode="clip")), buffers
    ),
}
