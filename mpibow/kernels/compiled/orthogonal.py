"""The orthogonal step of a matrix in one call, free of the GIL: `mpibow.kernels.numpy.orthogonal` defines it.

A matrix lies in panels of 16 rows here, column after column: a line of 16 rows' elements each, 0 beyond the last row
and column. Products take lines of one factor and single elements of the other, both in their order: L R^T, and L X
where L is symmetric. All squares are symmetric, so half of their panels are computed.

Every element of a product is one sum, in order and rounded once a term, whatever the registers' width.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba.core import cgutils

from mpibow.graph import Array
from mpibow.graph.memory import zeros
from mpibow.kernels.isa import ISA
from mpibow.kernels.numpy import orthogonal as reference
from mpibow.kernels.numpy.orthogonal import COEFFICIENTS, ITERATIONS
from mpibow.kernels.passes import Matrix

from .native import floats, integers
from .numeric import as_float
from .steps import compiled, inlined, square_of
from .vectors import BLOCK, I64, LINE, columns_of, emitted, load, multiply_add, registers, scalar_at, store, turn

ROWS = 16  # of a panel: floats of a line
# Sums of 16 rows in registers, enough of them to hide the latency of an addition: AVX-512 has 32 registers of 16
# floats, other processors have 16 of 8.
SIDE = 8 if ISA == "AVX-512" else 4
Coefficients = tuple[np.float32, ...]
NUMBERS = tuple(np.float32(each) for each in COEFFICIENTS)  # an argument: numba's cache ignores other files' constants


def _product(
    b: IRBuilder, lines: Value, others: Value, out: Value, blocks: Value, step: Value, along: int, across: int
) -> None:
    """Line j of `out`, j < SIDE, <- the sum over k of lines[k] others[k, j]: 16 k a block, elements of `others` that
    many bytes from each other along k and j, and `step` from block to block."""
    sums = registers(b, SIDE)
    with cgutils.for_range(b, blocks) as loop:
        here = b.add(lines, b.mul(loop.index, I64(BLOCK)))
        there = b.add(others, b.mul(loop.index, step))
        for k in range(ROWS):
            line = load(b, here, k * LINE)
            for j, each in enumerate(sums):
                scalar = scalar_at(b, there, k * along + j * across)
                b.store(multiply_add(b, scalar, line, b.load(each)), each)
    for j, each in enumerate(sums):
        store(b, b.load(each), out, j * LINE)


@emitted
def rows_by_rows(b: IRBuilder, left: Value, right: Value, out: Value, blocks: Value) -> None:
    """SIDE lines of L R^T: of the panel at `left`, and of SIDE rows of one that begin at `right`."""
    _product(b, left, right, out, blocks, I64(BLOCK), LINE, 4)


@emitted
def rows_by_columns(b: IRBuilder, left: Value, right: Value, out: Value, blocks: Value, panel: Value) -> None:
    """SIDE lines of L X: of the panel at `left`, and of SIDE columns at `right`; from panel to panel of X: bytes."""
    _product(b, left, right, out, blocks, panel, 4, LINE)


@emitted
def mirror(b: IRBuilder, block: Value) -> None:
    """Copies the elements below the diagonal of (16, 16) to above it."""
    lines = [load(b, block, i * LINE) for i in range(ROWS)]
    kind = ir.VectorType(ir.IntType(1), ROWS)
    for i, (line, column) in enumerate(zip(lines, columns_of(b, lines), strict=True)):
        below = ir.Constant(kind, [r >= i for r in range(ROWS)])
        store(b, b.select(below, line, column), block, i * LINE)


@emitted
def copy(b: IRBuilder, source: Value, target: Value) -> None:
    """target <- source, a line."""
    store(b, load(b, source), target)


@compiled
def _symmetric(left: int, right: int, out: int, panels: int, blocks: int) -> None:
    """out, symmetric, <- L R^T; both have so many panels, and blocks of 16 columns.

    Symmetric to the bit: otherwise products that rely on it diverge, and weak directions lose a digit.
    """
    panel = blocks * BLOCK
    side = panels * BLOCK
    for p in range(panels):
        for q in range(p + 1):
            for j in range(0, ROWS, SIDE):
                to = out + p * side + (ROWS * q + j) * LINE
                rows_by_rows(left + p * panel, right + q * panel + 4 * j, to, blocks)
            if q < p:
                turn(out + p * side + ROWS * q * LINE, out + q * side + ROWS * p * LINE)
            else:
                mirror(out + p * side + ROWS * p * LINE)


@compiled
def _polynomial(square: int, power: int, factor: int, panels: int, numbers: Coefficients) -> None:
    """power <- S^2 and factor <- numbers[0] + numbers[1] S + numbers[2] S^2 of S = square."""
    first, third, fifth = numbers
    _symmetric(square, square, power, panels, panels)
    side = ROWS * panels
    s = floats(square, side * side)
    p = floats(power, side * side)
    f = floats(factor, side * side)
    for i in range(side * side):
        f[i] = fifth * p[i] + third * s[i]
    for i in range(side):
        f[_diagonal(i, side)] += first


@inlined
def _diagonal(i: int, side: int) -> int:
    """The place of element (i, i)."""
    return (i // ROWS * side + i) * ROWS + i % ROWS


@inlined
def _beside(rows: Array, first: int) -> bool:
    """Whether the panel's rows lie side by side, so that its lines do."""
    return first + ROWS <= len(rows) and rows[first + ROWS - 1] - rows[first] == ROWS - 1


@inlined
def _read(total: Array, rows: Array, columns: Array, x: int, width: int) -> None:
    """x (panels, width, 16) <- V."""
    source = total.ctypes.data
    for first in range(0, len(rows), ROWS):
        panel = floats(x + 4 * first * width, ROWS * width)
        if _beside(rows, first):
            for j in range(len(columns)):
                copy(source + 4 * (rows[first] + columns[j]), panel.ctypes.data + j * LINE)
        else:
            for r in range(ROWS):
                for j in range(len(columns)):
                    inside = first + r < len(rows)
                    panel[ROWS * j + r] = total[rows[first + r] + columns[j]] if inside else np.float32(0)
        panel[ROWS * len(columns) :] = 0


@inlined
def _write(y: int, width: int, rows: Array, columns: Array, step: Array) -> None:
    """step <- y (panels, width, 16), where V lies."""
    target = step.ctypes.data
    for first in range(0, len(rows), ROWS):
        panel = floats(y + 4 * first * width, ROWS * width)
        if _beside(rows, first):
            for j in range(len(columns)):
                copy(panel.ctypes.data + j * LINE, target + 4 * (rows[first] + columns[j]))
        else:
            for r in range(min(ROWS, len(rows) - first)):
                for j in range(len(columns)):
                    step[rows[first + r] + columns[j]] = panel[ROWS * j + r]


@inlined
def _largest(address: int, size: int) -> float:
    """The largest |element|, compared as integers: vectors compare these in any order, and NaN is the largest."""
    x = integers(address, size)
    bits = np.int32(0)
    for i in range(size):
        bits = max(bits, x[i] & np.int32(0x7FFFFFFF))
    return np.float64(as_float(bits))


@inlined
def _scale(address: int, size: int, factor: float) -> None:
    """Multiplies in float64: the factor for tiny elements, and its inverse for huge ones, are beyond float32."""
    x = floats(address, size)
    for i in range(size):
        x[i] = np.float32(factor * x[i])


@inlined
def _or_1(divisor: float) -> float:
    return divisor or 1.0


@compiled
def _orthogonal(
    step: Array,
    total: Array,
    rows: Array,
    columns: Array,
    room: Array,
    scale: float,
    fixed: bool,
    numbers: Coefficients,
    iterations: int,
) -> None:
    """step <- the step of the matrix in the same place of `total`; `room` is 2 matrices and 4 squares, in panels."""
    a = len(rows)
    panels = -(-len(rows) // ROWS)
    blocks = -(-len(columns) // ROWS)
    side = ROWS * panels
    width = ROWS * blocks
    size = side * width
    area = side * side
    x = room.ctypes.data
    y = x + 4 * size
    square = y + 4 * size
    factor = square + 4 * area
    power = square + 8 * area
    whole = square + 12 * area

    _read(total, rows, columns, x, width)
    largest = _or_1(_largest(x, size))
    _scale(x, size, 1.0 / largest)  # no square overflows now, or is 0
    _symmetric(x, x, square, panels, blocks)
    s = floats(square, area)
    length = 0.0
    for i in range(a):
        length += s[_diagonal(i, side)]
    _scale(square, area, 1.0 / _or_1(length))
    _polynomial(square, power, factor, panels, numbers)
    w = floats(whole, area)
    f = floats(factor, area)
    for i in range(area):
        w[i] = f[i]
    for _ in range(iterations - 1):
        _symmetric(factor, square, power, panels, panels)
        _symmetric(power, factor, square, panels, panels)
        _polynomial(square, power, factor, panels, numbers)
        _symmetric(factor, whole, power, panels, panels)
        whole, power = power, whole
    for j in range(0, width, SIDE):
        for p in range(panels):
            place = (p * width + j) * LINE
            rows_by_columns(whole + p * side * LINE, x + j * LINE, y + place, panels, width * LINE)
    if fixed:
        _scale(y, size, scale / _or_1(length) ** 0.5)
    else:
        longer = largest * (length / _or_1(square_of(floats(y, size)))) ** 0.5
        _scale(y, size, longer * scale)
    _write(y, width, rows, columns, step)


def orthogonal(matrices: Sequence[Matrix], dtype: npt.DTypeLike, iterations: int = ITERATIONS) -> Callable[..., None]:
    """Like NumPy's; for float64, which no training with these kernels uses, it is NumPy's."""
    if dtype != np.float32:
        return reference.orthogonal(matrices, dtype, iterations)
    sides = [tuple(-(-len(each) // ROWS) * ROWS for each in (matrix.rows, matrix.columns)) for matrix in matrices]
    room = zeros(max((2 * a * b + 4 * a * a for a, b in sides), default=0), "float32")

    def make(step: Array, total: Array, number: int, *, scale: float, fixed: bool = False) -> None:
        matrix = matrices[number]
        _orthogonal(step, total, matrix.rows, matrix.columns, room, float(scale), fixed, NUMBERS, iterations)

    return make
