"""Orders and places of elements, as ATen calls them: sort, topk, gather's counterparts, and parts written."""

from functools import partial

import numpy as np

from mpibow import ops
from mpibow.graph import FLOAT, Shape, Tensor
from mpibow.ops.integers import integer

from .arithmetic import arithmetic, choose
from .shapes import along, unsqueeze
from .site import WHOLE, Function, Result, Site, Value, combined, dtype_of, filled, need, of_tensors, refuse


def places(x: Tensor, dim: int, start: int = 0, stop: int | None = None, *, largest: bool) -> Tensor:
    """The places along an axis by size, the largest or the smallest first; equal elements as they lie."""
    if not x.shape:
        return ops.constant(0)
    key = x
    if largest:  # as NaN is
        key = ops.where(ops.ne(x, x), -np.inf, ops.neg(x)) if x.dtype == FLOAT else integer(ops.constant(0), "-", x)
    return along(ops.argsort(key, dim), dim, slice(start, stop))


def kept(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """With the axis of a single element, or without."""
    return x if keepdim or not x.shape else along(x, dim, 0)


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return ops.gather(x, dim, index) if x.shape else ops.reshape(x, index.shape)


def topk(x: Tensor, k: int | None, dim: int = -1, largest: bool = True, sorted: bool = True) -> Result:
    index = places(x, dim, 0, k, largest=largest)
    return [gather(x, dim, index), index]


def kth(x: Tensor, k: int | None = None, dim: int = -1, keepdim: bool = False) -> Result:
    """kthvalue, and median, the lower one of two."""
    first = k - 1 if k else (x.shape[dim] - 1) // 2 if x.shape else 0
    index = places(x, dim, first, first + 1, largest=False)
    return [kept(each, dim, keepdim) for each in (gather(x, dim, index), index)]


def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Result:
    if dim is not None:
        return kth(x, None, dim, keepdim)
    return refuse("the median of all elements, whose gradient equal ones share; give dim")


def added(shape: Shape, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Zeros with the elements of `source` added at these places along an axis."""
    need(bool(shape), "a tensor without axes")
    part = (source if source.dtype == FLOAT else ops.cast(source, WHOLE))[
        tuple(slice(0, extent) for extent in index.shape)
    ]
    return ops.scatter_add(part, dim, index, shape)


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
    places = site.tensor(index)
    written = ops.gt(added(self.shape, dim, places, ops.full(index.shape, 1.0)), 0.0)
    if src is None:
        return choose(site, written, value, self)
    if not isinstance(index, np.ndarray):
        refuse("places that depend on the data may repeat, and the last one wins; scatter_add is there")
    need(bool(np.diff(np.sort(index, dim), axis=dim).all()), "places that repeat, of which the last one wins")
    return choose(site, written, added(self.shape, dim, places, site.tensor(src)), self)


def scatter_add(site: Site, self: Value, dim: int, index: Value, src: Value, alpha: float = 1) -> Result:
    return arithmetic("+", site, self, added(self.shape, dim, site.tensor(index), site.tensor(src)), alpha)


def index_add(site: Site, self: Value, dim: int, index: Value, source: Value, alpha: float = 1) -> Result:
    need(bool(self.shape) and bool(source.shape), "a tensor without axes")
    at = dim % len(self.shape)
    places = ops.reshape(site.tensor(index), [-1 if axis == at else 1 for axis in range(len(self.shape))])
    return scatter_add(site, self, at, ops.expand(places, source.shape), source, alpha)


def slice_scatter(
    x: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """x with `src` in place of a part along an axis."""
    at = dim % x.ndim
    first, last, _ = slice(start, end).indices(x.shape[at])
    need(step == 1, "a part with a step")
    middle = ops.cast(ops.expand(src, (*x.shape[:at], last - first, *x.shape[at + 1 :])), x.dtype)
    before = [along(x, at, slice(0, first))] if first else []
    behind = [along(x, at, slice(last, None))] if last < x.shape[at] else []
    return combined(partial(ops.concat, axis=at), [*before, middle, *behind])


def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    at = dim % x.ndim
    first = index % x.shape[at]
    return slice_scatter(x, unsqueeze(ops.expand(src, (*x.shape[:at], *x.shape[at + 1 :])), at), at, first, first + 1)


def triangle(lower: bool, x: Tensor, diagonal: int = 0) -> Tensor:
    mask = np.tri(x.shape[-2], x.shape[-1], diagonal if lower else diagonal - 1, dtype=bool)
    return ops.where(ops.constant(mask if lower else ~mask), x, filled(x.shape, 0, x.dtype))


OPERATORS: dict[str, Function] = {
    **of_tensors(
        {
            "gather": gather,
            "kthvalue": kth,
            "median": median,
            "select_scatter": select_scatter,
            "slice_scatter": slice_scatter,
            "sort": lambda x, dim=-1, descending=False, stable=False: topk(x, None, dim, descending),
            "topk": topk,
            "tril": partial(triangle, True),
            "triu": partial(triangle, False),
        }
    ),
    "copy": lambda site, self, src, **_: ops.cast(ops.expand(site.tensor(src), self.shape), dtype_of(self)),
    "index_add": index_add,
    "scatter": scatter,
    "scatter_add": scatter_add,
}
