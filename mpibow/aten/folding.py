"""Values of an exported graph that depend on no input but the batch size: computed at reading, for two sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibow.aten.program import Argument, BatchExtent
from mpibow.errors import ConfigError
from mpibow.graph.graph import Array

if TYPE_CHECKING:
    from torch import SymInt

SIZES = (3, 17)  # batch sizes, apart from those that modules have as extents


@dataclass(frozen=True, eq=False)
class ByBatch:
    """A value for each batch size of SIZES."""

    values: tuple[Any, ...]


def at(value: object, n: int) -> object:
    """A constant as it is for the batch size number n."""
    if isinstance(value, ByBatch):
        return value.values[n]
    return value.times * SIZES[n] if isinstance(value, BatchExtent) else value


def joined(values: Sequence[Any]) -> Any:
    """Results for each of SIZES as one value: a list of such where the results are lists."""
    first = values[0]
    if isinstance(first, list | tuple):
        return [joined(parts) for parts in zip(*values, strict=True)]
    if isinstance(first, int | float | bool) and first == values[1]:
        return first
    return ByBatch(tuple(values))


@dataclass(frozen=True)
class Folded:
    """An array by a formula: `first`, plus `step` times the sample's number, repeated to `size`.

    `split` has the batch as axes of their own, (n, times) of an extent n times; `axis` is that of the samples' numbers.
    """

    first: Array
    step: Array | None
    axis: int
    split: list[Argument]
    size: list[Argument]


def folded(arrays: Sequence[Array]) -> Folded | None:
    """The formula that gives these arrays for SIZES, None where there is none."""
    split, size, batch = list[Argument](), list[Argument](), list[int]()
    for extents in zip(*(array.shape for array in arrays), strict=True):
        if extents[0] == extents[1]:
            split.append(extents[0])
            size.append(extents[0])
            continue
        times = extents[0] // SIZES[0]
        if list(extents) != [times * size for size in SIZES]:
            return None
        batch.append(len(split))
        split += [BatchExtent(1), times] if times > 1 else [BatchExtent(1)]
        size.append(BatchExtent(times))
    if not batch:
        return None
    views = [
        array.reshape([each if isinstance(each, int) else count for each in split])
        for array, count in zip(arrays, SIZES, strict=True)
    ]
    first, step, along = views[1], None, -1
    for axis in batch:
        if _alike(views, axis):
            first = first.take([0], axis)
        elif step is None and _even(views, axis):
            along, step = axis, views[1].take([1], axis) - views[1].take([0], axis)
            first = first.take([0], axis)
        else:
            return None
    if step is not None:
        step = step[tuple(slice(0, 1) if each in batch else slice(None) for each in range(step.ndim))]
        kind = np.int32 if step.dtype.kind == "i" else step.dtype
        return Folded(first.astype(kind), step.astype(kind), along, split, size)
    same = all(np.array_equal(np.broadcast_to(first, view.shape), view, equal_nan=True) for view in views)
    return Folded(first, None, -1, split, size) if same else None


def _alike(views: Sequence[Array], axis: int) -> bool:
    """Whether all samples have the same numbers."""
    return all(bool((view == view.take([0], axis)).all()) for view in views)


def _even(views: Sequence[Array], axis: int) -> bool:
    """Whether numbers differ by the same from each sample to the next, for all batch sizes alike."""
    if views[0].dtype.kind not in "if":
        return False
    steps = [np.diff(view, axis=axis) for view in views]
    starts = [view.take([0], axis) for view in views]
    wide = starts[1].take([0], axis) if starts[0].shape != starts[1].shape else starts[1]
    return (
        starts[0].shape == wide.shape
        and bool((starts[0] == wide).all())
        and all(bool((each == steps[1].take([0], axis)).all()) for each in steps)
    )


def calls_of(array: Folded, add: Callable[..., Argument]) -> Argument:
    """The calls that make the array: `add(operator, arguments, size)` adds one and returns its result."""
    if array.step is not None:
        arguments = {"first": array.first, "step": array.step, "axis": array.axis, "size": array.split}
        made = add("by_sample", arguments, array.split)
    elif array.first.size and prod(array.first.shape) and (array.first == array.first.flat[0]).all():
        return add("full", {"size": array.size, "fill_value": float(array.first.flat[0])}, array.size)
    else:
        made = add("expand", {"self": array.first, "size": array.split}, array.split)
    return add("reshape", {"self": made, "shape": array.size}, array.size) if array.split != array.size else made


def extent_of(value: int | SymInt, kind: str) -> int | BatchExtent | ByBatch:
    """A size as a number, as a multiple of the batch size, or in another way."""
    if isinstance(value, int):
        return value
    expression = value.node.expr
    symbols = list(expression.free_symbols)
    if not symbols:
        return int(expression)
    if len(symbols) > 1:
        raise ConfigError(f"from_torch: {kind} has a size of {expression}, which depends on the data")
    sizes = [int(expression.subs(dict.fromkeys(symbols, n))) for n in SIZES]
    if sizes[0] == sizes[1]:
        return sizes[0]
    times = sizes[0] // SIZES[0]
    return BatchExtent(times) if sizes == [times * n for n in SIZES] else ByBatch(tuple(sizes))
