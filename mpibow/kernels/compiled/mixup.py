"""Mixup: shares drawn by Philox, and the mixed samples; rounded as NumPy does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpibow.graph.kernel import Call, Run
from mpibow.kernels.compiled.command import command, floats, native, words
from mpibow.kernels.compiled.numeric import first_block, index_at, stepwise, wide
from mpibow.ops.beta import SHARES, larger_shares
from mpibow.ops.philox import stream

_f, _u = np.float32, np.uint64


@native
def drawn_shares(arguments: int, _: int, count: int, __: int) -> int:
    """(counters, table, y, n, node, entries, shift): the table's entry at the index in a sample's first word."""
    a = words(arguments, count)
    table, y = floats(a[1], a[5]), floats(a[2], a[3])
    for i in range(a[3]):
        y[i] = table[first_block(a[0], i, a[4])[0] >> _u(a[6])]
    return 0


@stepwise
def _mix(own: Any, other: Any, share: Any) -> Any:
    return (own - other) * share + other


@native
def mixed(arguments: int, _: int, count: int, __: int) -> int:
    """(x, shares, y, n, size): every row mixed with the next, the last with the first."""
    a = words(arguments, count)
    n, size = a[3], a[4]
    shares = floats(a[1], n)
    for i in range(n):
        own, other = floats(a[0] + 4 * i * size, size), floats(a[0] + 4 * ((i + 1) % n) * size, size)
        y, share = floats(a[2] + 4 * i * size, size), shares[i]
        for j in range(size):
            y[j] = _mix(own[j], other[j], share)
    return 0


@native
def one_hots(arguments: int, _: int, count: int, __: int) -> int:
    """(labels, y, n, classes, wide labels): 1 at the label, 0 elsewhere."""
    a = words(arguments, count)
    for i in range(a[2]):
        label, y = index_at(a[0], a[4], i), floats(a[1] + 4 * i * a[3], a[3])
        for j in range(a[3]):
            y[j] = _f(0)
        if 0 <= label < a[3]:
            y[label] = _f(1)
    return 0


def shares_forward(call: Call) -> Run:
    counter, table = call.x[0], larger_shares(call.op.alpha).astype(_f)
    shift = 32 - (SHARES - 1).bit_length()
    return command(drawn_shares, counter, table, call.y, len(call.y), stream(call.name), SHARES, shift)


def mix_forward(call: Call) -> Run:
    x, share = call.x
    return command(mixed, x, share, call.y, len(x), math.prod(x.shape[1:]))


def one_hot_forward(call: Call) -> Run:
    label = call.x[0]
    return command(one_hots, label, call.y, *call.y.shape, wide(label))
