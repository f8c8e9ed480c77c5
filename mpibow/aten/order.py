"""Orders and places of elements, as ATen calls them: sort, topk, argmax, gather's counterparts, and parts written."""

from __future__ import annotations

from functools import partial

import numpy as np

from mpibow import ops
from mpibow.aten.site import Argument, Function, Result, Site, Value, dtype_of, need, refuse
from mpibow.graph.graph import FLOAT, Tensor
from mpibow.ops.integers import integer


def places(x: Tensor, dim: int, *, largest: bool) -> Tensor:
    """The places along an axis by size, the largest or the smallest first; equal elements as they lie."""
    if not largest:
        return ops.argsort(x, dim)
    return ops.argsort(ops.neg(x) if x.dtype == FLOAT else integer(ops.constant(0), "-", x), dim)


def part(x: Tensor, dim: int, start: int, stop: int) -> Tensor:
    at = dim % len(x.shape)
    return x[(slice(None),) * at + (slice(start, stop),)]


def first_place(x: Tensor, dim: int | None, keepdim: bool, *, largest: bool) -> Tensor:
    """argmax and argmin."""
    if not x.shape:
        return ops.constant(0)
    if dim is None:
        made = part(places(ops.reshape(x, (-1,)), 0, largest=largest), 0, 0, 1)
        return ops.reshape(made, (1,) * len(x.shape) if keepdim else ())
    at = dim % len(x.shape)
    made = part(places(x, at, largest=largest), at, 0, 1)
    return made if keepdim else ops.reshape(made, (*x.shape[:at], *x.shape[at + 1 :]))


def chosen(x: Tensor, dim: int, index: Tensor) -> list[Tensor]:
    """The elements at these places, and the places."""
    return [ops.gather(x, dim, index), index] if x.shape else [x, ops.constant(0)]


def sort(site: Site, self: Value, dim: int = -1, descending: bool = False, stable: bool = False) -> list[Tensor]:
    x = site.tensor(self)
    return chosen(x, dim, places(x, dim, largest=descending) if x.shape else x)


def argsort(site: Site, self: Value, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    return places(site.tensor(self), dim, largest=descending) if self.shape else ops.constant(0)


def topk(site: Site, self: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Result:
    x = site.tensor(self)
    return chosen(x, dim, part(places(x, dim, largest=largest), dim, 0, k) if x.shape else x)


def kth(site: Site, self: Value, k: int | None = None, dim: int = -1, keepdim: bool = False) -> Result:
    """kthvalue, and median, the lower one of two."""
    x = site.tensor(self)
    if not x.shape:
        return [x, ops.constant(0)]
    at = dim % len(x.shape)
    first = (x.shape[at] - 1) // 2 if k is None else k - 1
    made = chosen(x, at, part(places(x, at, largest=False), at, first, first + 1))
    return made if keepdim else [ops.reshape(each, (*x.shape[:at], *x.shape[at + 1 :])) for each in made]


def median(site: Site, self: Value, dim: int | None = None, keepdim: bool = False) -> Result:
    if dim is not None:
        return kth(site, self, None, dim, keepdim)
    return refuse("the median of all elements, whose gradient equal ones share; give dim")


def gather(site: Site, self: Value, dim: int, index: Value) -> Tensor:
    if not self.shape:
        return ops.reshape(site.tensor(self), index.shape)
    return ops.gather(site.tensor(self), dim, site.tensor(index))


def scatter(
    site: Site,
    self: Value,
    dim: int,
    index: Value,
    src: Value | None = None,
    value: float = 0.0,
    reduce: str | None = None,
) -> Tensor:
    """self with elements at these places along an axis in place of its own."""
    need(reduce is None, "scatter that reduces; scatter_add is there")
    x, places = site.floats(self), site.tensor(index)
    need(bool(x.shape), "a tensor without axes")
    ones = ops.full(index.shape, 1.0)
    written = ops.gt(ops.scatter_add(ones, dim, places, x.shape), 0.0)
    if src is None:
        return ops.where(written, float(value), x)
    if not isinstance(index, np.ndarray):
        refuse("places that depend on the data may repeat, and the last one wins; scatter_add is there")
    along = np.sort(np.moveaxis(index, dim, -1), -1)
    need(not (along[..., 1:] == along[..., :-1]).any(), "places that repeat, of which the last one wins")
    source = site.floats(src)[tuple(slice(0, extent) for extent in index.shape)]
    return ops.where(written, ops.scatter_add(source, dim, places, x.shape), x)


def scatter_add(site: Site, self: Value, dim: int, index: Value, src: Value) -> Tensor:
    x = site.floats(self)
    need(bool(x.shape), "a tensor without axes")
    source = site.floats(src)[tuple(slice(0, extent) for extent in index.shape)]
    return x + ops.scatter_add(source, dim, site.tensor(index), x.shape)


def index_add(site: Site, self: Value, dim: int, index: Value, source: Value, alpha: float = 1) -> Tensor:
    x, rows = site.floats(self), site.floats(source)
    need(bool(x.shape) and bool(rows.shape), "a tensor without axes")
    at = dim % len(x.shape)
    places = ops.reshape(site.tensor(index), [-1 if axis == at else 1 for axis in range(len(x.shape))])
    return x + ops.scatter_add(rows, at, ops.expand(places, rows.shape), x.shape) * float(alpha)


def slice_scatter(
    site: Site, self: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """self with `src` in place of a part along an axis."""
    x = site.tensor(self)
    at = dim % len(x.shape)
    first, last, _ = slice(start, end).indices(x.shape[at])
    need(step == 1, "a part with a step")
    middle = ops.cast(ops.expand(site.tensor(src), (*x.shape[:at], last - first, *x.shape[at + 1 :])), x.dtype)
    parts = [part(x, at, 0, first)] if first else []
    parts += [middle]
    parts += [part(x, at, last, x.shape[at])] if last < x.shape[at] else []
    return ops.concat(*parts, axis=at) if len(parts) > 1 else parts[0]


def select_scatter(site: Site, self: Value, src: Value, dim: int, index: int) -> Tensor:
    at = dim % len(self.shape)
    row, first = site.tensor(src), index % self.shape[at]
    wide = (*self.shape[:at], *self.shape[at + 1 :])
    whole = ops.reshape(ops.expand(row, wide), (*self.shape[:at], 1, *self.shape[at + 1 :]))
    return slice_scatter(site, self, whole, at, first, first + 1)


def copied(site: Site, self: Value, src: Value | None = None, other: Argument | None = None, **_: object) -> Tensor:
    source = other if src is None else src
    assert source is not None
    return ops.cast(ops.expand(site.tensor(source), self.shape), dtype_of(self))


def triangle(lower: bool, site: Site, self: Value, diagonal: int = 0) -> Tensor:
    x = site.tensor(self)
    mask = np.tri(x.shape[-2], x.shape[-1], diagonal if lower else diagonal - 1, dtype=bool)
    kept = ops.constant(mask if lower else ~mask)
    return ops.cast(ops.where(kept, x, 0.0), x.dtype)


OF_ANY: dict[str, Function] = {
    "argmax": lambda site, self, dim=None, keepdim=False: first_place(site.tensor(self), dim, keepdim, largest=True),
    "argmin": lambda site, self, dim=None, keepdim=False: first_place(site.tensor(self), dim, keepdim, largest=False),
    "argsort": argsort,
    "copy": copied,
    "gather": gather,
    "index_add": index_add,
    "kthvalue": kth,
    "median": median,
    "msort": lambda site, self: sort(site, self, 0)[0],
    "scatter": scatter,
    "scatter_add": scatter_add,
    "select_scatter": select_scatter,
    "slice_scatter": slice_scatter,
    "sort": sort,
    "topk": topk,
    "tril": partial(triangle, True),
    "triu": partial(triangle, False),
}
