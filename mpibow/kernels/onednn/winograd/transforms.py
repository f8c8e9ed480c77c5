"""Winograd's transforms of 2 or 4 outputs by 3 or 5 taps: matrices of constants, and code that multiplies by them."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from mpibow.kernels.compiled.vectors import VECTOR, plus_product

WIDE = 8  # outputs of a group of four tiles, from left to right

Matrix = tuple[tuple[Fraction, ...], ...]
Term = tuple[Fraction, Value]  # a factor and a vector


@dataclass(frozen=True)
class Transforms:
    """F(m, r): y = A^T (G g * B^T d) for r taps g and the size = m + r - 1 inputs d of m outputs y; * is number by
    number."""

    into: Matrix  # B^T (size, size)
    spread: Matrix  # G (size, r)
    out: Matrix  # A^T (m, size)

    @property
    def outputs(self) -> int:
        return len(self.out)

    @property
    def corners(self) -> list[tuple[int, int]]:
        """The rows and columns at which a group's tiles begin."""
        across = WIDE // self.outputs
        return [(t // across * self.outputs, t % across * self.outputs) for t in range(4)]

    @property
    def tall(self) -> int:
        """Outputs of a group from top to bottom."""
        return 4 * self.outputs**2 // WIDE

    @property
    def taps(self) -> int:
        return len(self.spread[0])

    @property
    def size(self) -> int:
        """Inputs of a tile on a side."""
        return len(self.spread)


def transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def at_points(taps: int, *points: Fraction) -> Transforms:
    """The transforms that evaluate polynomials at `points` and at infinity (Toom and Cook; Lavin & Gray,
    arXiv:1509.09308)."""
    one = Fraction(1)
    zero = Fraction(0)
    into = []
    spread = []
    for point in points:
        others = [other for other in points if other != point]
        value = reduce(lambda product, other: product * (point - other), others, one)
        sign = one if value > 0 or point else -one  # the sign of point 0 costs nothing there
        into.append((*(sign * factor for factor in _product(others)), zero))
        spread.append(tuple(sign * point**power / value for power in range(taps)))
    into.append(_product(points))
    spread.append((*(zero for _ in range(taps - 1)), one))
    last = len(points) + 1 - taps  # outputs but for one
    out = ((*(point**power for point in points), one if power == last else zero) for power in range(last + 1))
    return Transforms(tuple(into), tuple(spread), tuple(out))


def _product(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of the polynomial that has these roots, the lowest power's first."""
    factors = [Fraction(1)]
    zero = Fraction(0)
    for root in roots:
        factors = [below - root * here for below, here in zip([zero, *factors], [*factors, zero], strict=True)]
    return tuple(factors)


# By form: its outputs and taps, on a side, as two digits. Points in pairs +-a share their work. These five points have
# a quarter of the errors of 0, +-1, +-2.
_SIX = Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)
TRANSFORMS = {
    23: at_points(3, Fraction(0), Fraction(1), Fraction(-1)),
    25: at_points(5, *_SIX),
    43: at_points(3, *_SIX),
}


def multiply(b: IRBuilder, matrix: Matrix, lines: list[Value]) -> list[Value]:
    """The code of matrix @ lines. Rows that differ by signs only, and columns, belong to points +-a: their common
    terms are computed once."""
    matrix, lines = _folded(b, matrix, lines)
    products = list[Value]()
    while len(products) < len(matrix):
        row = matrix[len(products)]
        terms = [(factor, line) for factor, line in zip(row, lines, strict=True) if factor]
        twin = matrix[len(products) + 1] if len(products) + 1 < len(matrix) else ()
        if len(terms) > 2 and [abs(factor) for factor in twin] == [abs(factor) for factor in row]:
            pairs = [pair for pair in zip(row, twin, lines, strict=True) if pair[0]]
            even = _sum(b, [(mine, line) for mine, other, line in pairs if mine == other])
            odd = _sum(b, [(mine, line) for mine, other, line in pairs if mine != other])
            products += [_value(b, _sum(b, [even, odd])), _value(b, _sum(b, [even, (-odd[0], odd[1])]))]
        else:
            products.append(_value(b, _sum(b, terms)))
    return products


def _folded(b: IRBuilder, matrix: Matrix, lines: list[Value]) -> tuple[Matrix, list[Value]]:
    """Neighbours that are always added to or always subtracted from each other become their sum and difference, where
    there are rows enough for that to save anything."""
    columns = list(transposed(matrix))
    lines = list(lines)
    for j in range(len(columns) - 1 if len(matrix) > 2 else 0):
        first, second = columns[j : j + 2]
        equal = [x == y != 0 for x, y in zip(first, second, strict=True)]
        opposed = [x == -y != 0 for x, y in zip(first, second, strict=True)]
        if any(equal) and any(opposed) and [abs(x) for x in first] == [abs(y) for y in second]:
            columns[j] = tuple(x if same else Fraction(0) for x, same in zip(first, equal, strict=True))
            columns[j + 1] = tuple(x if other else Fraction(0) for x, other in zip(first, opposed, strict=True))
            lines[j : j + 2] = b.fadd(*lines[j : j + 2]), b.fsub(*lines[j : j + 2])
    return transposed(tuple(columns)), lines


def _sum(b: IRBuilder, terms: list[Term]) -> Term:
    """One term's factor is kept apart, so that it costs no product: 1, or else the smallest."""
    first = max(range(len(terms)), key=lambda i: (terms[i][0] == 1, -abs(terms[i][0]), terms[i][0], -i))
    scale, total = terms[first]
    for i, (factor, line) in enumerate(terms):
        if i != first:
            total = _add(b, total, factor / scale, line)
    return scale, total


def _add(b: IRBuilder, total: Value, factor: Fraction, line: Value) -> Value:
    if abs(factor) == 1:
        return (b.fadd if factor == 1 else b.fsub)(total, line)
    return plus_product(b, total, _constant(factor), line)


def _value(b: IRBuilder, term: Term) -> Value:
    factor, line = term
    return line if factor == 1 else b.fmul(_constant(factor), line)


def _constant(factor: Fraction) -> Value:
    return ir.Constant(VECTOR, [float(factor)] * 16)
