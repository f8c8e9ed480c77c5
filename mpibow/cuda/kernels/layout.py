"""Launches that only move elements: reorders, concatenation, channels padded with zeros, batches of a data set."""

from itertools import accumulate
from math import gcd, prod

import numpy as np

from mpibow.cuda.device.array import PlanArray
from mpibow.cuda.device.cupy_driver import address_of
from mpibow.errors import ShapeError
from mpibow.graph import Array, Call, Formats, Op, Shape, Shapes, Tags
from mpibow.graph.formats import parse, physical
from mpibow.ops.moves import axis_in_memory

from .kernels import UNITS, Launch, Launches, instance, turns

TILE, ROWS = 32, 8  # as in layout.cu
PACK = 16  # bytes that a thread copies at once where rows are whole packs
WORD = 4  # bytes that go along with a row, such as a label
LAST = {2: "ab", 3: "acb", 4: "acdb", 5: "acdeb"}  # channels innermost, by the number of axes


def transposed(source: str, target: str, shape: Shape) -> tuple[int, int, int]:
    """(batch, rows, columns): the reorder of a tensor (shape) as a transpose of the last two.

    Raises ShapeError for any other reorder; no kernel here requires one.
    """
    (old, _), (new, _) = parse(source), parse(target)
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b), len(old))
    rest = old[same:]
    cut = rest.index(new[same]) if rest else 0
    if "".join((source, target)).lower() != source + target or rest[cut:] + rest[:cut] != new[same:]:
        raise ShapeError(f"CUDA kernels reorder by swapping two runs of axes, got {source} to {target}")
    extents = [shape[axis] for axis in rest]
    return prod(shape[axis] for axis in old[:same]), prod(extents[:cut]), prod(extents[cut:])


def _transpose(x: Array, y: Array, batch: int, rows: int, columns: int) -> Launches:
    grid = (-(-columns // TILE), -(-rows // TILE), batch)
    return [Launch(instance("transpose", UNITS[x.dtype.itemsize]), grid, (x, y, rows, columns), (TILE, ROWS, 1))]


def reorder_forward(call: Call) -> Launches:
    return _transpose(call.x0, call.y, *transposed(call.op.source, call.op.target, call.shapes.y))


def reorder_backward(call: Call) -> Launches:
    return _transpose(call.dy, call.dx0, *transposed(call.op.target, call.op.source, call.shapes.y))


def around(call: Call, axis: int, shape: Shape) -> tuple[int, int, int]:
    """The extents of a tensor (shape) in y's layout: in front of an axis, along it, and from one step to the next."""
    extents, place = physical(call.shapes.formats.y, shape), axis_in_memory(call, axis)
    return prod(extents[:place]), extents[place], prod(extents[place + 1 :])


def _runs(call: Call, shape: Shape) -> tuple[int, int]:
    """The number and length of a tensor's (shape) runs of memory in one that is longer along the operator's axis.

    Replicas have their channels beside one another; each has runs of its own.
    """
    k = getattr(call.op, "replicas", 1)
    before, length, behind = around(call, getattr(call.op, "axis", 1), shape)
    return k * before, length * behind // k


def _copy(source: Array, target: Array, runs: int, length: int, zeros: int, step: int, stride: int) -> Launch:
    """See copy_runs in layout.cu; 16 bytes at a time where all of it is a multiple of that."""
    size = source.dtype.itemsize
    addresses = map(address_of, (source, target))
    unit = PACK if gcd(*addresses, *(number * size for number in (length, zeros, step, stride))) % PACK == 0 else size
    numbers = (np.int64(number * size // unit) for number in (length, zeros, step, stride))
    kernel = instance("copy_runs", "Pack<float, 4>" if unit == PACK else UNITS[size])
    return Launch(kernel, turns(runs * (length + zeros) * size // unit), (source, target, np.int64(runs), *numbers))


def _from(array: Array, element: int) -> Array:
    return array.reshape(-1)[element:]


def _places(call: Call) -> list[tuple[int, int, int]]:
    """(first element, runs, length) of every input in the output, and the output's own run last: (0, runs, stride)."""
    parts = [_runs(call, shape) for shape in (*call.shapes.x, call.shapes.y)]
    starts = accumulate((length for _, length in parts[:-1]), initial=0)
    return [(start, *part) for start, part in zip(starts, parts, strict=True)]


def last_formats(op: Op, shapes: Shapes, given: Tags) -> Formats:
    """Channels innermost: a replica's are one run."""
    return Formats(tuple(LAST[len(shape)] for shape in shapes.x), LAST[len(shapes.y)])


def concat_forward(call: Call) -> Launches:
    *places, (_, _, stride) = _places(call)
    return [
        _copy(x, _from(call.y, start), runs, length, 0, length, stride)
        for x, (start, runs, length) in zip(call.x, places, strict=True)
    ]


def concat_backward(call: Call) -> Launches:
    """Of padded channels, too."""
    *places, (_, _, stride) = _places(call)
    return [
        _copy(_from(call.dy, start), dx, runs, length, 0, stride, length)
        for dx, (start, runs, length) in zip(call.dx, places, strict=True)
        if dx is not None
    ]


def pad_forward(call: Call) -> Launches:
    (_, runs, length), (_, _, stride) = _places(call)
    return [_copy(call.x0, call.y, runs, length, stride - length, length, stride)]


def gather(table: PlanArray, words: PlanArray, counters: PlanArray, rows: PlanArray, word: PlanArray) -> Launch:
    """rows (n, bytes) uint8 and word (n,) <- rows of table (count, bytes) uint8 and of words (count,), of 4 bytes each.

    The rows are those of the samples in counters (n, 4) uint32, as in a slot. Arrays begin at a multiple of
    PACK bytes. `words` and `word` may be None.
    """
    (count, size), n = table.shape, len(rows)
    unit, width = ("unsigned char", size) if size % PACK else ("Pack<float, 4>", size // PACK)
    arguments = (table, words, counters, rows, word, np.int64(width), np.int64(count))
    return Launch(instance("gather", unit), (turns(width)[0], n, 1), arguments)
