"""Shapes, parts and orders of tensors, as ATen calls them: `x` is what it calls self."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from mpibow import ops
from mpibow.aten.program import BatchExtent
from mpibow.aten.site import Filled, Function, ModuleArray, Site, Value, need, refuse
from mpibow.graph.graph import FLOAT, Tensor
from mpibow.ops.initialisers import ZERO


def listed(value: int | Sequence[int]) -> list[int]:
    """A list, or one number as a list."""
    return [value] if isinstance(value, int) else list(value)


def reshape(x: Tensor, shape: Sequence[int] | None = None, size: Sequence[int] | None = None) -> Tensor:
    wanted = tuple((shape if size is None else size) or ())
    return ops.reshape(x, wanted) if wanted != x.shape else x


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    first, last = start_dim % len(x.shape), end_dim % len(x.shape)
    return reshape(x, (*x.shape[:first], prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    at, parts = dim % len(x.shape), list(sizes)
    if -1 in parts:
        parts[parts.index(-1)] = x.shape[at] // -prod(parts)
    return ops.reshape(x, (*x.shape[:at], *parts, *x.shape[at + 1 :]))


def turned(x: Tensor) -> Tensor:
    """The last two axes exchanged; a vector unchanged."""
    return x if len(x.shape) < 2 else ops.transpose(x)


def movedim(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    rank = len(x.shape)
    sources, targets = ([each % rank for each in listed(given)] for given in (source, destination))
    rest = [axis for axis in range(rank) if axis not in sources]
    order = dict(zip(targets, sources, strict=True))
    return ops.permute(x, *(order[axis] if axis in order else rest.pop(0) for axis in range(rank)))


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    at = dim % (len(x.shape) + 1)
    return ops.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def squeeze(site: Site, self: Value, dim: int | Sequence[int] | None = None) -> Tensor:
    x, made = site.tensor(self), site.call.shape or ()
    if dim is None:
        return reshape(x, tuple(n.times * site.batch if isinstance(n, BatchExtent) else n for n in made))
    axes = {each % len(x.shape) for each in listed(dim)}
    return reshape(x, tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes or extent != 1))


def expand(site: Site, self: Value, size: Sequence[int] = (), other: Value | None = None) -> Value:
    wanted, given = size if other is None else other.shape, self.shape
    front = len(wanted) - len(given)
    shape = tuple(given[i - front] if extent == -1 else extent for i, extent in enumerate(wanted))
    return Filled(shape, self.value, self.dtype) if isinstance(self, Filled) else ops.expand(site.tensor(self), shape)


def repeat(x: Tensor, repeats: Sequence[int] = (), dims: Sequence[int] = ()) -> Tensor:
    times = [*repeats, *dims]
    rank = max(len(times), len(x.shape))
    times = [1] * (rank - len(times)) + times
    shape = (1,) * (rank - len(x.shape)) + x.shape
    split = [extent for size in shape for extent in (1, size)]
    wide = [extent for n, size in zip(times, shape, strict=True) for extent in (n, size)]
    made = ops.expand(ops.reshape(x, split), tuple(wide))
    return ops.reshape(made, tuple(n * size for n, size in zip(times, shape, strict=True)))


def cat(site: Site, tensors: Sequence[Value], dim: int = 0) -> Tensor:
    parts = site.tensors([each for each in tensors if prod(each.shape) or len(each.shape) > 1])
    return ops.concat(*parts, axis=dim) if len(parts) > 1 else parts[0]


def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    at = dim % len(x.shape)
    return [ops.reshape(part, (*x.shape[:at], *x.shape[at + 1 :])) for part in ops.split(x, 1, axis=at)]


def split(
    x: Tensor, split_size: int | Sequence[int] = 1, split_sizes: Sequence[int] | None = None, dim: int = 0
) -> tuple[Tensor, ...]:
    return ops.split(x, split_sizes or split_size, axis=dim)


def along(x: Tensor, dim: int, index: int | slice) -> Tensor:
    """x[index] along one axis."""
    return x[(slice(None),) * (dim % len(x.shape)) + (index,)]


def sliced(x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    return along(x, dim, slice(start, end, step))


def roll(x: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> Tensor:
    axes = listed(dims)
    need(bool(axes), "roll needs dims")
    for by, axis in zip(listed(shifts), axes, strict=True):
        if first := -by % x.shape[axis]:
            x = ops.concat(along(x, axis, slice(first, None)), along(x, axis, slice(0, first)), axis=axis)
    return x


def rows(site: Site, table: Tensor, index: Value) -> Tensor:
    """table (k, ...)[index (...)], whose rows may occur twice."""
    width, wanted = prod(table.shape[1:]), index.shape
    flat = ops.reshape(table, (table.shape[0], width))
    if isinstance(index, np.ndarray):
        numbers: Tensor = ops.constant(np.ascontiguousarray(index.reshape(-1, 1)))
    else:
        numbers = ops.reshape(site.tensor(index), (-1, 1))
    found = ops.gather(flat, 0, ops.expand(numbers, (numbers.shape[0], width)))
    return ops.reshape(found, (*wanted, *table.shape[1:]))


def embedding(
    site: Site, weight: Value, indices: Value, padding_idx: int = -1, scale_grad_by_freq: bool = False
) -> Tensor:
    need(not scale_grad_by_freq, "scale_grad_by_freq: gradients are not scaled by frequency here")
    need(bool(indices.shape) or not isinstance(weight, ModuleArray), "the indices must have an axis")
    if not site.owns(weight) or not isinstance(indices, Tensor):
        found = rows(site, site.tensor(weight), indices)
    else:
        (found,) = site.layer(ops.Embedding(weight.shape[0], weight.shape[1], ZERO), indices, weight=weight)
    if padding_idx < 0:
        return found
    need(isinstance(weight, ModuleArray) and not weight.array[padding_idx].any(), "the row of padding_idx must be 0")
    padding = ops.eq(site.tensor(indices), float(padding_idx))
    return ops.where(ops.reshape(padding, (*padding.shape, 1)), 0.0, found)


def indexed(site: Site, self: Value, indices: Sequence[Value | None]) -> Tensor:
    """self[i, j, ...], where neighbouring axes have arrays of numbers that do not depend on the data."""
    x, axes = site.tensor(self), [axis for axis, each in enumerate(indices) if each is not None]
    need(axes == list(range(axes[0], axes[-1] + 1)), "axes that are indexed by tensors must be neighbours")
    arrays = []
    for axis in axes:
        index = indices[axis]
        array = index.array if isinstance(index, ModuleArray) and not index.trained else index
        if not isinstance(array, np.ndarray):
            refuse("the index depends on the data; mpibow.gather and mpibow.embedding take such")
        if array.dtype == bool:
            refuse("an index of bools, or one that depends on the data, chooses a number of elements that varies")
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


def index_select(site: Site, self: Value, dim: int, index: Value) -> Tensor:
    axis = dim % len(self.shape)
    if axis == 0 and not isinstance(index, np.ndarray):
        return rows(site, site.tensor(self), index)
    return indexed(site, self, [None] * axis + [index])


def filled(value: float | None) -> Function:
    """zeros, ones, empty, and those like another tensor."""

    def make(
        site: Site,
        self: Value | None = None,
        size: Sequence[int] | None = None,
        fill_value: float | None = None,
        **_: object,
    ) -> Filled:
        shape = self.shape if size is None and self is not None else tuple(size or ())
        return Filled(shape, value if fill_value is None else float(fill_value), site.call.dtype or FLOAT)

    return make


def as_it_is(site: Site, self: Value, **_: object) -> Value:
    return self


def item(site: Site, values: Sequence[Tensor | None], place: int) -> Tensor:
    if (found := values[place]) is None:
        refuse("indices of largest numbers; there are only the numbers")
    return found


# By the functions' arguments: tensors of any type; anything, and the call's site.
OF_TENSORS: dict[str, Function] = {
    "_unsafe_view": reshape,
    "chunk": lambda x, chunks, dim=0: ops.split(x, -(-x.shape[dim] // chunks), axis=dim),
    "flatten": flatten,
    "flip": lambda x, dims: ops.flip(x, *dims),
    "gather": lambda x, dim, index: ops.gather(x, dim, index),
    "mT": turned,
    "movedim": movedim,
    "narrow": lambda x, dim, start, length: sliced(x, dim, start, start + length),
    "numpy_T": turned,
    "permute": lambda x, dims: ops.permute(x, *dims),
    "repeat": repeat,
    "reshape": reshape,
    "reshape_as": lambda x, other: reshape(x, other.shape),
    "roll": roll,
    "select": along,
    "slice": sliced,
    "split": split,
    "split_with_sizes": split,
    "stack": lambda x, dim=0: ops.stack(*x, axis=dim),
    "swapaxes": lambda x, axis0, axis1: ops.transpose(x, axis0, axis1),
    "t": turned,
    "tile": repeat,
    "transpose": lambda x, dim0, dim1: ops.transpose(x, dim0, dim1),
    "unbind": unbind,
    "unflatten": unflatten,
    "unsqueeze": unsqueeze,
    "view": reshape,
    "view_as": lambda x, other: reshape(x, other.shape),
}

OF_ANY: dict[str, Function] = {
    "alias": as_it_is,
    "cat": cat,
    "clone": as_it_is,
    "contiguous": as_it_is,
    "embedding": embedding,
    "expand": expand,
    "expand_as": expand,
    "index": indexed,
    "index_select": index_select,
    "lift_fresh_copy": as_it_is,
    "squeeze": squeeze,
    **dict.fromkeys(("empty", "empty_like", "full", "full_like", "new_empty", "new_full"), filled(None)),
    **dict.fromkeys(("new_ones", "ones", "ones_like"), filled(1.0)),
    **dict.fromkeys(("new_zeros", "zeros", "zeros_like"), filled(0.0)),
}
