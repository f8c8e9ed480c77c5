"""Mixup: shares drawn by Philox, and the mixed samples; rounded as NumPy does."""

import math

import numpy as np

from mpibow.graph import Call, Kernel, Run
from mpibow.ops import Mix, MixShares, OneHot
from mpibow.ops.mixup import SHARES, larger_shares
from mpibow.ops.philox import stream

from .native import Address, Floats, Indices, native, row_at
from .numeric import first_block, index_at, stepwise

_f = np.float32
_u = np.uint64


@native
def drawn_shares(counter: Address, table: Floats, y: Floats, node: int, shift: int) -> None:
    """y = the table's entry at the index in a sample's first word."""
    for i in range(len(y)):
        y[i] = table[first_block(counter, i, node)[0] >> _u(shift)]


@stepwise
def _mix(own: np.float32, other: np.float32, share: np.float32) -> np.float32:
    return (own - other) * share + other


@native
def mixed(x: Address, share: Floats, y: Address, size: int) -> None:
    """y = every row mixed with the next, the last with the first."""
    n = len(share)
    for i in range(n):
        own = row_at(x, i, size)
        other = row_at(x, (i + 1) % n, size)
        y_row = row_at(y, i, size)
        part = share[i]
        for j in range(size):
            y_row[j] = _mix(own[j], other[j], part)


@native
def one_hots(label: Indices, y: Address, n: int, classes: int) -> None:
    """y = 1 at the label, 0 elsewhere."""
    for i in range(n):
        place = index_at(label, i)
        y_row = row_at(y, i, classes)
        y_row[:] = 0
        if 0 <= place < classes:
            y_row[place] = _f(1)


def shares_forward(call: Call) -> Run:
    table = larger_shares(call.op.alpha).astype(_f)
    shift = 32 - (SHARES - 1).bit_length()
    return drawn_shares.on(call, table=table, node=stream(call.name), shift=shift)


KERNELS = {
    Mix: Kernel(mixed.half(lambda call: {"size": math.prod(call.y.shape[1:])})),
    MixShares: Kernel(shares_forward),
    OneHot: Kernel(one_hots.half(lambda call: {"n": len(call.y)})),
}
