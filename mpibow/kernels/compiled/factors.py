"""Gradients of dense layers' weights as the two factors that they are products of: written small, multiplied when read.

A batch of b gives dy^T x, of rank b. For b far below the layer's width the factors stay in a core's cache, where the
gradient itself would go to memory and come back three times. mpibow.graph.layout defines their places.
"""

import numba
import numpy as np
from llvmlite.ir import IRBuilder, Value
from numba.core import cgutils

from mpibow.graph import Array
from mpibow.graph.layout import TILE
from mpibow.kernels.isa import ISA

from .code_cache import PART
from .native import Address, Floats, native
from .panels import multiply_tiles
from .vectors import I64, LINE, load, multiply_add, places, specialised, store

NEAR = 64  # inputs whose gradients are summed at a time
LANES = 64 if ISA == "AVX-512" else 16  # units that lie side by side, in the layout that oneDNN is fast in


@native
def write_factors(
    x: Floats, dy: Floats, out: Floats, batch: int, inputs: int, units: int, rank: int, bias: Floats = None
) -> None:
    """out = the factors of x (batch, inputs) and dy (batch, units), 0 from batch to rank; bias = the sums of dy."""
    at = 0
    for block in range(0, units, LANES):
        for b in range(rank):
            for j in range(LANES):
                out[at + j] = dy[b * units + block + j] if b < batch else np.float32(0)
            at += LANES
    for i in range(inputs):
        for b in range(rank):
            out[at + i * rank + b] = x[b * inputs + i] if b < batch else np.float32(0)
    if len(bias):
        for j in range(units):
            bias[j] = dy[j]
        for b in range(1, batch):
            for j in range(units):
                bias[j] += dy[b * units + j]


@specialised(range(1, 5))
def _add_lines(b: IRBuilder, blocks: int, weight: Value, between: Value, dy: Value, sums: Value, count: Value) -> None:
    """sums (count, 16) += the lines of some vectors of weights, `between` from each other, times dy (blocks, 16)."""
    ds = [load(b, dy, block * LINE) for block in range(blocks)]
    with cgutils.for_range(b, count) as loop:
        to = b.add(sums, b.mul(loop.index, I64(LINE)))
        total = load(b, to)
        lines = b.add(weight, b.mul(loop.index, I64(4 * LANES)))
        for place, d in zip(places(b, lines, between, blocks), ds, strict=True):
            total = multiply_add(b, load(b, place), d, total)
        store(b, total, to)


@native
def spread(weight: Address, dy: Address, dx: Floats, sums: Floats, batch: int, inputs: int, units: int) -> None:
    """dx (batch, inputs) = dy (batch, units) weight, in blocks: (units / LANES, inputs, LANES)."""
    between = inputs * LINE if LANES == 16 else LINE
    for start in range(0, inputs, NEAR):
        count = min(NEAR, inputs - start)
        sums[:] = 0
        for block in range(0, units // 16, 4):
            lines = weight + block * inputs * LINE + start * 4 * LANES
            for b in range(batch):
                d = dy + 4 * (b * units + 16 * block)
                to = sums.ctypes.data + b * NEAR * LINE
                _add_lines(min(4, units // 16 - block), lines, between, d, to, count)
        for b in range(batch):
            for i in range(count):
                at = 16 * (b * NEAR + i)
                dx[b * inputs + start + i] = sums[at : at + 16].sum()


@numba.njit(**PART, forceinline=True)
def tile(row: Array, factor: Array, a: int, out: Array) -> None:
    """out <- elements a to a + TILE of a gradient, kept in `row` as the `factor` (start, stop, rank, inputs)."""
    start = factor[0]
    rank = factor[2]
    inputs = factor[3]
    run = (a - start) // LANES
    units = (factor[1] - start) // inputs
    address = row.ctypes.data + 4 * start
    v = address + 4 * rank * LANES * (run // inputs)
    s = address + 4 * rank * (units + run % inputs)
    lanes = 4 * LANES
    multiply_tiles(
        4, LANES // 16, s, v, out.ctypes.data, rank, 4 * rank, 4, lanes, 0, 0, 16, TILE // lanes, 0, 0, 0, LINE, LINE
    )
