"""Shapes, parts and orders of tensors, as ATen calls them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mpibow import ops
from mpibow.aten.site import Filled, Held, Site, shape_of
from mpibow.graph.graph import FLOAT, Tensor


def reshape(site: Site, self: Any, shape: Sequence[Any] | None = None, size: Sequence[Any] | None = None) -> Any:
    x, wanted = site.tensor(self), site.extents((shape if size is None else size) or ())
    return ops.reshape(x, wanted) if wanted != x.shape else x


def reshape_as(site: Site, self: Any, other: Any) -> Any:
    return reshape(site, self, shape_of(other))


def flatten(site: Site, self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    x = site.tensor(self)
    first, last = start_dim % len(x.shape), end_dim % len(x.shape)
    if first == last:
        return x
    return ops.reshape(x, (*x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def unflatten(site: Site, self: Any, dim: int, sizes: Sequence[Any]) -> Any:
    x = site.tensor(self)
    at = dim % len(x.shape)
    parts = list(site.extents(sizes))
    if -1 in parts:
        parts[parts.index(-1)] = x.shape[at] // -prod(parts)
    return ops.reshape(x, (*x.shape[:at], *parts, *x.shape[at + 1 :]))


def permute(site: Site, self: Any, dims: Sequence[int]) -> Any:
    return ops.permute(site.tensor(self), *dims)


def transpose(site: Site, self: Any, dim0: int, dim1: int) -> Any:
    return ops.transpose(site.tensor(self), dim0, dim1)


def swapaxes(site: Site, self: Any, axis0: int, axis1: int) -> Any:
    return ops.transpose(site.tensor(self), axis0, axis1)


def turned(site: Site, self: Any) -> Any:
    """The last two axes exchanged; a vector unchanged."""
    x = site.tensor(self)
    return x if len(x.shape) < 2 else ops.transpose(x)


def movedim(site: Site, self: Any, source: Any, destination: Any) -> Any:
    x = site.tensor(self)
    return ops.permute(x, *_moved(len(x.shape), source, destination))


def _moved(rank: int, source: Any, destination: Any) -> list[int]:
    sources, targets = (
        [each % rank for each in ([given] if isinstance(given, int) else given)] for given in (source, destination)
    )
    rest = [axis for axis in range(rank) if axis not in sources]
    order = dict(zip(targets, sources, strict=True))
    return [order[axis] if axis in order else rest.pop(0) for axis in range(rank)]


def unsqueeze(site: Site, self: Any, dim: int) -> Any:
    x = site.tensor(self)
    at = dim % (len(x.shape) + 1)
    return ops.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def squeeze(site: Site, self: Any, dim: Any = None) -> Any:
    x = site.tensor(self)
    if dim is None:
        shape = tuple(site.extents(site.call.shape or ()))
    else:
        axes = {each % len(x.shape) for each in ([dim] if isinstance(dim, int) else dim)}
        shape = tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes or extent != 1)
    return x if shape == x.shape else ops.reshape(x, shape)


def expand(site: Site, self: Any, size: Sequence[Any] | None = None, implicit: bool = False, other: Any = None) -> Any:
    wanted = list(shape_of(other)) if size is None else list(site.extents(size))
    front = len(wanted) - len(shape_of(self))
    shape = tuple(shape_of(self)[i - front] if extent == -1 else extent for i, extent in enumerate(wanted))
    if isinstance(self, Filled):
        return Filled(shape, self.value, self.dtype)
    return ops.expand(site.tensor(self), shape)


def repeat(site: Site, self: Any, repeats: Sequence[Any] | None = None, dims: Sequence[Any] | None = None) -> Any:
    times = list(site.extents((repeats if dims is None else dims) or ()))
    x = site.tensor(self)
    rank = max(len(times), len(x.shape))
    times = [1] * (rank - len(times)) + times
    shape = (1,) * (rank - len(x.shape)) + x.shape
    split = [extent for n, size in zip(times, shape, strict=True) for extent in (1, size)]
    wide = [extent for n, size in zip(times, shape, strict=True) for extent in (n, size)]
    made = ops.expand(ops.reshape(x, split), tuple(wide))
    return ops.reshape(made, tuple(n * size for n, size in zip(times, shape, strict=True)))


def cat(site: Site, tensors: Sequence[Any], dim: int = 0) -> Any:
    parts = site.tensors([each for each in tensors if prod(shape_of(each)) or len(shape_of(each)) > 1])
    return ops.concat(*parts, axis=dim) if len(parts) > 1 else parts[0]


def stack(site: Site, tensors: Sequence[Any], dim: int = 0) -> Any:
    return ops.stack(*site.tensors(tensors), axis=dim)


def unbind(site: Site, self: Any, dim: int = 0) -> Any:
    x = site.tensor(self)
    at = dim % len(x.shape)
    parts = ops.split(x, 1, axis=at)
    return [ops.reshape(part, (*x.shape[:at], *x.shape[at + 1 :])) for part in parts]


def split(site: Site, self: Any, split_size: Any = None, split_sizes: Any = None, dim: int = 0) -> Any:
    return ops.split(site.tensor(self), split_size if split_sizes is None else tuple(split_sizes), axis=dim)


def chunk(site: Site, self: Any, chunks: int, dim: int = 0) -> Any:
    x = site.tensor(self)
    return ops.split(x, -(-x.shape[dim] // chunks), axis=dim)


def select(site: Site, self: Any, dim: int, index: int) -> Any:
    x = site.tensor(self)
    return x[(slice(None),) * (dim % len(x.shape)) + (index,)]


def sliced(site: Site, self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    x = site.tensor(self)
    return x[(slice(None),) * (dim % len(x.shape)) + (slice(start, end, step),)]


def narrow(site: Site, self: Any, dim: int, start: int, length: int) -> Any:
    return sliced(site, self, dim, start, start + length)


def flip(site: Site, self: Any, dims: Sequence[int]) -> Any:
    return ops.flip(site.tensor(self), *dims)


def roll(site: Site, self: Any, shifts: Any, dims: Any = ()) -> Any:
    x = site.tensor(self)
    axes = [dims] if isinstance(dims, int) else list(dims)
    site.need(bool(axes), "roll needs dims")
    for by, axis in zip([shifts] if isinstance(shifts, int) else shifts, axes, strict=True):
        first = -by % x.shape[axis]
        if first:
            front = (slice(None),) * (axis % len(x.shape))
            x = ops.concat(x[(*front, slice(first, None))], x[(*front, slice(0, first))], axis=axis)
    return x


def rows(site: Site, table: Tensor, index: Any) -> Tensor:
    """table (k, ...)[index (...)], whose rows may occur twice."""
    width, wanted = prod(table.shape[1:]), shape_of(index)
    flat = ops.reshape(table, (table.shape[0], width))
    if isinstance(index, np.ndarray):
        numbers: Tensor = ops.constant(np.ascontiguousarray(index.reshape(-1, 1)))
    else:
        numbers = ops.reshape(site.tensor(index), (-1, 1))
    found = ops.gather(flat, 0, ops.expand(numbers, (numbers.shape[0], width)))
    return ops.reshape(found, (*wanted, *table.shape[1:]))


def index(site: Site, self: Any, indices: Sequence[Any]) -> Any:
    """self[i, j, ...], where neighbouring axes have arrays of numbers that do not depend on the data."""
    x, axes = site.tensor(self), [axis for axis, each in enumerate(indices) if each is not None]
    if axes != list(range(axes[0], axes[-1] + 1)):
        site.refuse("axes that are indexed by tensors must be neighbours")
    arrays = []
    for axis in axes:
        array = _constant(site, indices[axis])
        if array.dtype == bool:
            site.refuse("an index of bools, or one that depends on the data, chooses a number of elements that varies")
        arrays.append(np.where(array < 0, array + x.shape[axis], array))
    places = np.broadcast_arrays(*arrays)
    flat = np.ravel_multi_index(tuple(places), tuple(x.shape[axis] for axis in axes))
    order = [*axes, *(axis for axis in range(len(x.shape)) if axis not in axes)]
    front = ops.permute(x, *order) if axes[0] else x
    extents = front.shape[len(axes) :]
    found = rows(site, ops.reshape(front, (prod(front.shape[: len(axes)]), *extents)), flat)
    if not axes[0]:
        return found
    rank, before = flat.ndim, axes[0]
    back = [*range(rank, rank + before), *range(rank), *range(rank + before, len(found.shape))]
    return ops.permute(found, *back)


def index_select(site: Site, self: Any, dim: int, index: Any) -> Any:
    axis = dim % len(shape_of(self))
    if axis == 0 and not isinstance(index, np.ndarray):
        return rows(site, site.tensor(self), index)
    return globals()["index"](site, self, [None] * axis + [index])


def gather(site: Site, self: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    return ops.gather(site.tensor(self), dim, site.tensor(index))


def _constant(site: Site, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Held) and not value.trained:
        return value.array
    return site.refuse("the index depends on the data; mpibow.gather and mpibow.embedding take such")


def filled(value: float | None) -> Any:
    """zeros, ones, empty, and those like another tensor."""

    def make(site: Site, self: Any = None, size: Any = None, fill_value: Any = None, **_: Any) -> Any:
        shape = site.extents(size) if size is not None else shape_of(self)
        number = value if fill_value is None else float(fill_value)
        return Filled(shape, number, site.call.dtype or FLOAT)

    return make


def as_it_is(site: Site, self: Any, **_: Any) -> Any:
    return self


def item(site: Site, values: Any, place: int) -> Any:
    site.need(values[place] is not None, "indices of largest numbers; there are only the numbers")
    return values[place]
