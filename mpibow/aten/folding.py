"""Values of an exported graph that depend on no input but the batch size: computed at reading, for two sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibow.errors import ConfigError
from mpibow.graph import Array

from .program import BatchExtent

if TYPE_CHECKING:
    from torch import SymInt

SIZES = (3, 131)  # batch sizes, apart from those that modules have as extents; most runs have none beyond


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


def formula_of(arrays: Sequence[Array]) -> dict[str, Any] | None:
    """The arguments of `by_sample` that give these arrays for SIZES; None where none do.

    They are an array of the first samples, and one to add for each sample more along one axis that is the batch.
    """
    batch = []
    size = []
    split = list[int | BatchExtent]()  # as `size`, with two axes for an extent of n times: (n, times)
    for extents in zip(*(array.shape for array in arrays), strict=True):
        extent = multiple(extents)
        if isinstance(extent, ByBatch):
            return None
        size.append(extent)
        if isinstance(extent, int):
            split.append(extent)
        else:
            batch.append(len(split))
            split += [BatchExtent(1), extent.times] if extent.times > 1 else [extent]
    if not batch:
        return None
    few, many = (
        array.reshape([each.times * count if isinstance(each, BatchExtent) else each for each in split])
        for array, count in zip(arrays, SIZES, strict=True)
    )

    def sample(axis: int | None) -> Array:
        """The second sample along an axis that is the batch, and the first along the others."""
        part = many
        for each in batch:
            part = part.take([int(each == axis)], each)
        return part

    first = whole = sample(None)
    moving = [axis for axis in batch if not np.array_equal(sample(axis), first, equal_nan=True)]
    if len(moving) > 1 or (moving and many.dtype.kind not in "if"):
        return None
    formula: dict[str, Any] = {"first": first, "split": split, "size": size}
    for axis in moving:
        step = sample(axis) - first
        numbers = np.arange(SIZES[1]).reshape([-1 if each == axis else 1 for each in range(many.ndim)])
        whole = first + step * numbers
        formula |= {"step": step, "axis": axis}
    whole = np.broadcast_to(whole, many.shape)
    fewer = whole[tuple(map(slice, few.shape))]
    same = np.array_equal(whole, many, equal_nan=True) and np.array_equal(fewer, few, equal_nan=True)
    return formula if same else None


def multiple(sizes: Sequence[int]) -> int | BatchExtent | ByBatch:
    """A size that is known for each of SIZES as a number, as a multiple of the batch size, or in another way."""
    times = sizes[0] // SIZES[0]
    if sizes[0] == sizes[1]:
        return sizes[0]
    return BatchExtent(times) if list(sizes) == [times * n for n in SIZES] else ByBatch(tuple(sizes))


def extent_of(value: "int | SymInt", kind: str) -> int | BatchExtent | ByBatch:
    """A size as a number, as a multiple of the batch size, or in another way."""
    if isinstance(value, int):
        return value
    expression = value.node.expr
    symbols = expression.free_symbols
    if len(symbols) > 1:
        raise ConfigError(f"from_torch: {kind} has a size of {expression}, which depends on the data")
    return multiple([int(expression.subs(dict.fromkeys(symbols, n))) for n in SIZES])
