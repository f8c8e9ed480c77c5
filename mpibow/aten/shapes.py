"""Shapes, parts and orders of tensors, as ATen calls them: `x` is what it calls self."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import numpy as np

from mpibow import ops
from mpibow.graph import FLOAT, Array, Tensor

from .program import BatchExtent
from .site import BySample, Filled, Function, Site, Value, combined, of_tensors, refuse

Axes = int | Sequence[int]


def listed(value: Axes) -> list[int]:
    """A list, or one number as a list."""
    return [value] if isinstance(value, int) else list(value)


def along(x: Tensor, dim: int, index: int | slice) -> Tensor:
    """x[index] along one axis."""
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def reshape(x: Tensor, shape: Sequence[int] | None = None, size: Sequence[int] = ()) -> Tensor:
    wanted = tuple(size if shape is None else shape)
    return ops.reshape(x, wanted) if wanted != x.shape else x


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    at = dim % (x.ndim + 1)
    return ops.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def squeeze(site: Site, self: Value, dim: Axes | None = None) -> Tensor:
    x = site.tensor(self)
    if dim is None:
        return reshape(x, [n.times * site.batch if isinstance(n, BatchExtent) else n for n in site.call.shape or ()])
    axes = {each % x.ndim for each in listed(dim)}
    return reshape(x, [extent for axis, extent in enumerate(x.shape) if axis not in axes or extent != 1])


def expand(site: Site, self: Value, size: Sequence[int]) -> Value:
    front = len(size) - len(self.shape)
    shape = tuple(self.shape[i - front] if extent == -1 else extent for i, extent in enumerate(size))
    if isinstance(self, np.ndarray) and self.dtype.kind == "i":  # may be an index
        return np.broadcast_to(self, shape)
    return Filled(shape, self.value, self.dtype) if isinstance(self, Filled) else ops.expand(site.tensor(self), shape)


def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    split = [extent for size in shape for extent in (1, size)]
    wide = tuple(extent for n, size in zip(repeats, shape, strict=True) for extent in (n, size))
    made = ops.expand(ops.reshape(x, split), wide)
    return ops.reshape(made, [n * size for n, size in zip(repeats, shape, strict=True)])


def cat(site: Site, tensors: Sequence[Value], dim: int = 0) -> Tensor:
    return combined(partial(ops.concat, axis=dim), site.tensors([each for each in tensors if prod(each.shape)]))


def roll(x: Tensor, shifts: Axes, dims: Axes = ()) -> Tensor:
    axes = listed(dims)
    if not axes:
        return ops.reshape(roll(ops.reshape(x, (-1,)), shifts, 0), x.shape)
    for by, axis in zip(listed(shifts), axes, strict=True):
        if first := -by % x.shape[axis]:
            x = ops.concat(along(x, axis, slice(first, None)), along(x, axis, slice(0, first)), axis=axis)
    return x


def full(site: Site, size: Sequence[int], fill_value: float, **_: object) -> Filled:
    return Filled(tuple(size), float(fill_value), site.call.dtype or FLOAT)


def by_sample(
    site: Site, first: Array, split: Sequence[int], size: Sequence[int], step: Array | None = None, axis: int = 0
) -> Value:
    """An array of `size` whose extents of several times the batch are two in `split`."""
    kind = np.int32 if first.dtype.kind == "i" else first.dtype
    if step is not None:
        made: Value = BySample(first.astype(kind), step.astype(kind), axis, tuple(split))
    elif first.size and (first == first.flat[0]).all():
        return full(site, size, first.flat[0])
    else:
        made = expand(site, first.astype(kind), split)
    return made if split == size else reshape(site.tensor(made), size)


def item(site: Site, values: Sequence[Tensor | Callable[[], Tensor] | None], place: int) -> Tensor:
    if (found := values[place]) is None:
        refuse("places of the largest numbers of windows; there are only the numbers")
    return found() if callable(found) else found


OPERATORS: dict[str, Function] = {
    **of_tensors(
        {
            "_unsafe_view": reshape,
            "flip": lambda x, dims: ops.flip(x, *dims),
            "permute": lambda x, dims: ops.permute(x, *dims),
            "repeat": repeat,
            "reshape": reshape,
            "roll": roll,
            "select": along,
            "slice": lambda x, dim=0, start=None, end=None, step=1: along(x, dim, slice(start, end, step)),
            "split": lambda x, split_size, dim=0: ops.split(x, split_size, axis=dim),
            "split_with_sizes": lambda x, split_sizes, dim=0: ops.split(x, split_sizes, axis=dim),
            "stack": lambda x, dim=0: ops.stack(*x, axis=dim),
            "transpose": lambda x, dim0, dim1: ops.transpose(x, dim0, dim1),
            "unbind": lambda x, dim=0: [along(part, dim, 0) for part in ops.split(x, 1, axis=dim)],
            "unsqueeze": unsqueeze,
            "view": reshape,
        }
    ),
    **dict.fromkeys(("alias", "clone", "contiguous"), lambda site, self, **_: self),
    "cat": cat,
    "expand": expand,
    "full": full,
    "full_like": lambda site, self, fill_value, **_: full(site, self.shape, fill_value),
    "squeeze": squeeze,
    # None of ATen's: for those that return several values, and for arrays that depend on the batch size.
    "by_sample": by_sample,
    "getitem": item,
}
