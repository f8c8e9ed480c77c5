"""Rows of a table and elements along an axis, taken by number, and their gradients scattered back."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.command import command, floats, native, words
from mpibow.kernels.compiled.numeric import index_at, wide
from mpibow.ops import KERNELS, Embedding, Gather
from mpibow.ops.choose import starts_of

_f = np.float32


@native
def take_rows(arguments: int, _: int, count: int, __: int) -> int:
    """(table, numbers, y, kept (n,), n, rows, width, wide numbers): y[i] = table[numbers[i]], or the nearest row."""
    a = words(arguments, count)
    width, kept = a[6], words(a[3], a[4])
    for i in range(a[4]):
        row = min(max(index_at(a[1], a[7], i), 0), a[5] - 1)
        kept[i] = row
        source, y = floats(a[0] + 4 * row * width, width), floats(a[2] + 4 * i * width, width)
        for j in range(width):
            y[j] = source[j]
    return 0


@native
def add_rows(arguments: int, _: int, count: int, __: int) -> int:
    """(table, kept (n,), dy, n, rows, width): table = 0, then table[kept[i]] += dy[i], in order."""
    a = words(arguments, count)
    width, kept = a[5], words(a[1], a[3])
    whole = floats(a[0], a[4] * width)
    for j in range(a[4] * width):
        whole[j] = _f(0)
    for i in range(a[3]):
        row, dy = floats(a[0] + 4 * kept[i] * width, width), floats(a[2] + 4 * i * width, width)
        for j in range(width):
            row[j] += dy[j]
    return 0


@native
def take(arguments: int, _: int, count: int, __: int) -> int:
    """(x, numbers, starts (n,), place (n,), y, n, step, last, wide numbers): y[i] = x[place[i]], place[i] = starts[i] +
    numbers[i] step."""
    a = words(arguments, count)
    starts, place, y = words(a[2], a[5]), words(a[3], a[5]), floats(a[4], a[5])
    for i in range(a[5]):
        place[i] = starts[i] + min(max(index_at(a[1], a[8], i), 0), a[7]) * a[6]
        y[i] = floats(a[0] + 4 * place[i], 1)[0]
    return 0


@native
def add_at(arguments: int, _: int, count: int, __: int) -> int:
    """(dx, place (n,), dy, n, size): dx = 0, then dx[place[i]] += dy[i], in order."""
    a = words(arguments, count)
    dx, place, dy = floats(a[0], a[4]), words(a[1], a[3]), floats(a[2], a[3])
    for j in range(a[4]):
        dx[j] = _f(0)
    for i in range(a[3]):
        dx[place[i]] += dy[i]
    return 0


def _indices(array: Array) -> bool:
    return array.dtype in (np.int32, np.int64)


def embedding_forward(call: Call) -> Run:
    (x,), table, index = call.x, call.w["weight"], call.buffer("index")
    if not _indices(x):
        return KERNELS[Embedding].forward(call)
    return command(take_rows, table, x, call.y, index, x.size, *table.shape, wide(x))


def embedding_backward(call: Call) -> Run:
    table, index = call.dw["weight"], call.saved["index"]
    return command(add_rows, table, index, call.dy, index.size, *table.shape)


def gather_buffers(op: Gather, shapes: Shapes) -> Buffers:
    place: dict[str, Spec] = {"place": (shapes.y, "int64")}
    return Buffers(saved=place) if shapes.training else Buffers(forward=place)


def gather_forward(call: Call) -> Run:
    (x, index), y = call.x, call.y
    if not _indices(index) or x.dtype != np.float32:
        return KERNELS[Gather].forward(call)
    starts, step = starts_of(call.op.axis, x.shape, index.shape)
    starts = np.ascontiguousarray(starts)
    last = x.shape[call.op.axis] - 1
    return command(take, x, index, starts, call.buffer("place"), y, y.size, step, last, wide(index))


def gather_backward(call: Call) -> Run:
    (dx, *_), dy, place = call.dx, call.dy, call.saved["place"]
    assert dx is not None
    return command(add_at, dx, place, dy, dy.size, dx.size)
