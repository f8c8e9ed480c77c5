"""Elements and rows by their numbers, as ATen calls them: indices, embeddings, windows along an axis."""

from collections.abc import Sequence
from math import prod

import numpy as np

from mpibow import ops
from mpibow.graph import Array, Tensor
from mpibow.ops.initialisers import ZERO
from mpibow.ops.integers import FROM_START, integer, integer_reduction

from .site import BySample, Function, ModuleArray, Result, Site, Value, dtype_of, need, refuse


def rows(site: Site, table: Tensor, index: Value) -> Tensor:
    """table (k, ...)[index (...)], whose rows may occur twice."""
    width = prod(table.shape[1:])
    flat = ops.reshape(table, (table.shape[0], width))
    numbers = ops.reshape(site.tensor(index), (-1, 1))
    found = ops.gather(flat, 0, ops.expand(numbers, (numbers.shape[0], width)))
    return ops.reshape(found, (*index.shape, *table.shape[1:]))


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
    padding = ops.eq(site.tensor(indices), float(padding_idx))  # it takes the gradient alone
    return ops.where(ops.reshape(padding, (*padding.shape, 1)), ops.detach(found), found)


def _numbered(site: Site, self: Value, indices: Sequence[Value | None]) -> dict[int, Array | Tensor]:
    """The integers that index each axis; a mask without data stands for the places where it holds."""
    found = {}
    axis = 0
    for index in indices:
        if isinstance(index, ModuleArray) and not index.trained:
            index = index.array
        if index is None or dtype_of(index) != "bool":
            if index is not None:
                found[axis] = index if isinstance(index, np.ndarray) else site.tensor(index)
            axis += 1
            continue
        if not isinstance(index, np.ndarray):
            refuse("a mask that depends on the data chooses a number of elements that varies; torch.where keeps all")
        for places in np.nonzero(index):
            found[axis] = places
            axis += 1
    return found


def _flat_places(places: Sequence[Array | Tensor], extents: Sequence[int], batch: int) -> Array | Tensor:
    """The numbers of rows of a table whose first axes, of these extents, have become one."""
    if not any(isinstance(each, Tensor) for each in places):
        arrays = [np.asarray(each) % extent for each, extent in zip(places, extents, strict=True)]
        return np.asarray(np.ravel_multi_index(tuple(np.broadcast_arrays(*arrays)), tuple(extents)))
    # The batch size is no constant, which would hold for this size alone.
    sizes = [
        ops.constant(extent)
        if extent != batch
        else integer(integer_reduction(ops.arange(batch), "max", 0), "+", ops.constant(1))
        for extent in extents
    ]
    flat, *others = (
        integer(each if isinstance(each, Tensor) else ops.constant(each), FROM_START, size)
        for each, size in zip(places, sizes, strict=True)
    )
    for index, size in zip(others, sizes[1:], strict=True):
        flat = integer(integer(flat, "*", size), "+", index)
    return flat


def indexed(site: Site, self: Value, indices: Sequence[Value | None]) -> Tensor:
    """self[i, j, ...], of arrays of numbers."""
    x = site.tensor(self)
    places = _numbered(site, self, indices)
    axes = [*places]
    flat = _flat_places([*places.values()], [x.shape[axis] for axis in axes], site.batch)
    order = [*axes, *(axis for axis in range(x.ndim) if axis not in axes)]
    front = ops.permute(x, *order) if order != [*range(len(order))] else x
    extents = front.shape[len(axes) :]
    found = rows(site, ops.reshape(front, (prod(front.shape[: len(axes)]), *extents)), flat)
    if not axes[0] or axes != list(range(axes[0], axes[-1] + 1)):  # some lie apart
        return found
    rank = flat.ndim
    before = axes[0]
    return ops.permute(found, *range(rank, rank + before), *range(rank), *range(rank + before, found.ndim))


def index_select(site: Site, self: Value, dim: int, index: Value) -> Tensor:
    axis = dim % len(self.shape)
    return indexed(site, self, [None] * axis + [index])


def unfolded(site: Site, self: Value, dimension: int, size: int, step: int) -> Tensor:
    """Windows along an axis, which a last axis is added for."""
    at = dimension % len(self.shape)
    starts = np.arange(0, self.shape[at] - size + 1, step)
    made = indexed(site, self, [None] * at + [starts[:, None] + np.arange(size)])
    return ops.permute(made, *(axis for axis in range(made.ndim) if axis != at + 1), at + 1)


def bags_of(
    site: Site,
    weight: Value,
    indices: Value,
    offsets: Value,
    mode: int = 0,
    per_sample_weights: Value | None = None,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    **_: object,
) -> Result:
    """embedding_bag, where all bags have as many numbers: 0 sums, 1 means, 2 maxima."""
    bags = offsets.shape[0]
    total = indices.shape[0]
    count = total // bags
    even = isinstance(offsets, BySample) and not offsets.first.any() and bool((offsets.step == count).all())
    need(even and count * bags == total, "bags of different sizes")
    need(padding_idx < 0 and mode < 2 and not scale_grad_by_freq, "bags with padding, of maxima or scaled gradients")
    found = rows(site, site.tensor(weight), indices)
    if per_sample_weights is not None:
        found *= ops.reshape(site.floats(per_sample_weights), (-1, 1))
    wide = ops.reshape(found, (bags, count, found.shape[1]))
    return [ops.sum(wide, 1) if mode == 0 else ops.mean(wide, 1), None, None, None]


OPERATORS: dict[str, Function] = {
    "_embedding_bag": bags_of,
    "embedding": embedding,
    "index": indexed,
    "index_select": index_select,
    "unfold": unfolded,
}
