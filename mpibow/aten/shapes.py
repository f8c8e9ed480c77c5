"""Shapes, parts and orders of tensors, as ATen calls them: `x` is what it calls self."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from mpibow import ops
from mpibow.aten.program import BatchExtent
from mpibow.aten.site import Filled, Function, Site, Value, dtype_of, number, refuse
from mpibow.graph.graph import FLOAT, Tensor


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
    if isinstance(self, np.ndarray) and self.dtype.kind == "i":  # may be an index
        return np.broadcast_to(self, shape)
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
    parts = site.tensors([each for each in tensors if prod(each.shape)])
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
    if not axes:
        return ops.reshape(roll(ops.reshape(x, (-1,)), shifts, 0), x.shape)
    for by, axis in zip(listed(shifts), axes, strict=True):
        if first := -by % x.shape[axis]:
            x = ops.concat(along(x, axis, slice(first, None)), along(x, axis, slice(0, first)), axis=axis)
    return x


def interleaved(x: Tensor, repeats: int, dim: int | None = None, **_: object) -> Tensor:
    """Each element `repeats` times."""
    if dim is None:
        x, dim = ops.reshape(x, (-1,)), 0
    at = dim % len(x.shape)
    front, rest = x.shape[: at + 1], x.shape[at + 1 :]
    wide = ops.expand(ops.reshape(x, (*front, 1, *rest)), (*front, repeats, *rest))
    return ops.reshape(wide, (*front[:-1], front[-1] * repeats, *rest))


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


def fill(site: Site, self: Value, value: float = 0.0) -> Value:
    if number(value) is None:
        return ops.expand(site.tensor(value), self.shape)
    return Filled(self.shape, number(value), dtype_of(self))


def as_it_is(site: Site, self: Value, **_: object) -> Value:
    return self


def item(site: Site, values: Sequence[Tensor | Callable[[], Tensor] | None], place: int) -> Tensor:
    if (found := values[place]) is None:
        refuse("places of the largest numbers of windows; there are only the numbers")
    return found() if callable(found) else found


# By the functions' arguments: tensors of any type; anything, and the call's site.
OF_TENSORS: dict[str, Function] = {
    "_unsafe_view": reshape,
    "chunk": lambda x, chunks, dim=0: ops.split(x, -(-x.shape[dim] // chunks), axis=dim),
    "flatten": flatten,
    "flip": lambda x, dims: ops.flip(x, *dims),
    "mT": turned,
    "movedim": movedim,
    "narrow": lambda x, dim, start, length: sliced(x, dim, start, start + length),
    "numpy_T": turned,
    "permute": lambda x, dims: ops.permute(x, *dims),
    "repeat": repeat,
    "repeat_interleave": interleaved,
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
    "expand": expand,
    "expand_as": expand,
    "lift_fresh_copy": as_it_is,
    "fill": fill,
    "zero": fill,
    "squeeze": squeeze,
    **dict.fromkeys(("empty", "empty_like", "full", "full_like", "new_empty", "new_full"), filled(None)),
    **dict.fromkeys(("new_ones", "ones", "ones_like"), filled(1.0)),
    **dict.fromkeys(("new_zeros", "zeros", "zeros_like"), filled(0.0)),
}
