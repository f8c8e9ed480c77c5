"""Launches that make the common step orthogonal, of all matrices at once; mpibow.sync.orthogonal defines it.

The same few launches, however many matrices: tables in device memory assign each block its part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mpibow.graph.formats import parse
from mpibow.graph.graph import Array
from mpibow.graph.layout import ALIGNMENT, Span
from mpibow.kernels.cuda.kernels import Constant, Launch, lanes, turns

if TYPE_CHECKING:
    from mpibow.kernels.cuda.passes import DeviceFlat

TILE = 64  # elements of a block's side: as in orthogonal.cu
PIECE = 1024  # columns of a piece of a Gram matrix: likewise
Coefficients = tuple[float, float, float]
SQUARES = 6  # arrays of squares that the polynomials take turns with
# As defined in orthogonal.cu. Tiles are a matrix's own, those of its square, and those of its Gram matrix's pieces.
MATRIX = np.dtype(
    [(name, "i8") for name in ("place", "own", "square", "piece")]
    + [(name, "i4") for name in ("rows", "columns", "turned", "pieces", "tile", "tiles", "cell", "cells")],
    align=True,
)
PART = np.dtype([(name, "i4") for name in ("matrix", "row", "column", "piece")])


@dataclass(frozen=True)
class Tables:
    """The matrices of a flat array (size,), whose spans they are: outputs outermost, all else in any order.

    That order is another one of columns, which changes neither lengths nor directions of rows: it is left as it is.
    """

    spans: tuple[Span, ...]
    size: int

    @cached_property
    def matrices(self) -> Array:
        """(n,) of MATRIX."""
        found = np.zeros(len(self.spans), MATRIX)
        following = dict.fromkeys(("own", "square", "piece", "tile", "cell"), 0)
        for span, record in zip(self.spans, found, strict=True):
            outer, blocks = parse(span.format)
            assert outer[0] == 0, span
            assert not blocks, span
            assert span.offset % ALIGNMENT == 0, span
            outputs, rest = span.shape[0], prod(span.shape[1:])
            rows, columns = sorted((outputs, rest))
            pieces, cells = -(-columns // PIECE), (-(-rows // TILE)) ** 2
            tiles = -(-rows // TILE) * -(-columns // TILE)
            record["place"], record["rows"], record["columns"] = span.offset, rows, columns
            record["turned"], record["pieces"], record["tiles"], record["cells"] = outputs > rest, pieces, tiles, cells
            for name, value in following.items():
                record[name] = value
            length = -(-span.size // ALIGNMENT) * ALIGNMENT
            taken = {"own": length, "square": rows**2, "piece": pieces * rows**2, "tile": tiles, "cell": cells}
            following = {name: value + taken[name] for name, value in following.items()}
        return found

    def _parts(self, width: str, pieces: str = "") -> Array:
        """Every tile of rows by `width` columns, matrix by matrix; of each of the `pieces`."""
        found = []
        for number, matrix in enumerate(self.matrices):
            counts = (matrix[pieces] if pieces else 1, -(-matrix["rows"] // TILE), -(-matrix[width] // TILE))
            piece, row, column = np.indices(counts, np.int32).reshape(3, -1)
            part = np.zeros(row.size, PART)
            part["matrix"], part["row"], part["column"], part["piece"] = number, TILE * row, TILE * column, piece
            found.append(part)
        return np.concatenate(found)

    @cached_property
    def tiles(self) -> Array:
        """The tiles of the matrices, (all their tiles,) of PART."""
        return self._parts("columns")

    @cached_property
    def cells(self) -> Array:
        """The tiles of their squares (rows, rows)."""
        return self._parts("rows")

    @cached_property
    def pieces(self) -> Array:
        """The tiles of the pieces of their Gram matrices."""
        return self._parts("rows", "pieces")

    @cached_property
    def owners(self) -> Array:
        """The matrix that elements belong to, ALIGNMENT at a time: its number, or -1. Padding belongs to it."""
        found = np.full(-(-self.size // ALIGNMENT), -1, np.int32)
        for number, span in enumerate(self.spans):
            found[span.offset // ALIGNMENT : -(-(span.offset + span.size) // ALIGNMENT)] = number
        return found

    @property
    def scratch(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shapes and types of the scratch of `launches`."""
        rows, pieces = (self.matrices[name].astype(np.int64) for name in ("rows", "pieces"))
        elements = sum(-(-span.size // ALIGNMENT) * ALIGNMENT for span in self.spans)
        return {
            "x": ((elements,), "float32"),
            "y": ((elements,), "float32"),
            "squares": ((SQUARES, int((rows**2).sum())), "float32"),
            "pieces": ((int((pieces * rows**2).sum()),), "float32"),
            "sums": ((int(self.matrices["tiles"].sum()),), "float64"),
            "fourths": ((int(self.matrices["cells"].sum()),), "float64"),
            "norms": ((len(self.spans),), "float64"),
            "lengths": ((len(self.spans),), "float32"),
        }

    @property
    def scratch_bytes(self) -> int:
        return sum(prod(shape) * np.dtype(dtype).itemsize for shape, dtype in self.scratch.values())


def launches(
    tables: Tables, scratch: dict[str, Any], weights: Any, mean: Any, total: Any, step: Any,
    coefficients: Coefficients, iterations: int,
) -> list[Launch]:  # fmt: skip
    """w_i <- w_i + S, for all rows of weights (k, size), and mean (size,) <- mean + scale U + S of the sums U = total.

    S is gain U, but of matrices min(even, gain reach) |V| O / |O|; `step` has the gain, even and scale.
    """
    matrices, owners = Constant(tables.matrices), Constant(tables.owners)
    (k, size), stride = weights.shape, weights.strides[0] // weights.itemsize
    assert stride % lanes("float32") == 0 or k == 1, stride
    arguments = (weights, mean, total, scratch["y"], scratch["lengths"], matrices, owners, step)
    extents = (np.int64(size), np.int64(stride), np.int32(k))
    last = Launch("add_common", turns(size, lanes("float32")), (*arguments, *extents))
    return [*_matrices(tables, scratch, total, step, coefficients, iterations), last] if tables.spans else [last]


def _matrices(
    tables: Tables, scratch: dict[str, Any], total: Any, step: Any, coefficients: Coefficients,
    iterations: int,
) -> list[Launch]:  # fmt: skip
    """scratch's y <- whole X of all matrices, X = V / |V|, its lengths <- the factors that make y the common step."""
    assert iterations > 1
    x, y, pieces, sums, fourths, norms, lengths = (
        scratch[name] for name in ("x", "y", "pieces", "sums", "fourths", "norms", "lengths")
    )
    square, product, factor, other, *spares = (scratch["squares"][i] for i in range(SQUARES))
    matrices, tiles, cells = (Constant(each) for each in (tables.matrices, tables.tiles, tables.cells))
    parts, numbers = Constant(tables.pieces), [np.float32(each) for each in coefficients]
    of_matrices, of_tiles, of_cells = ((len(each.array), 1, 1) for each in (matrices, tiles, cells))

    def polynomial(made: Any, fourths: Any = None) -> Launch:
        return Launch("polynomials", of_cells, (square, matrices, cells, *numbers, made, fourths))

    def products(left: Any, right: Any, made: Any, other_right: Any = None, other_made: Any = None) -> Launch:
        grid = (of_cells[0], 1 if other_made is None else 2, 1)
        return Launch("square_products", grid, (left, right, made, other_right, other_made, matrices, cells))

    found = [
        Launch("matrix_squares", of_tiles, (total, matrices, tiles, sums)),
        Launch("matrix_norms", of_matrices, (sums, matrices, norms)),
        Launch("normalised", of_tiles, (total, matrices, tiles, norms, x)),
        Launch("gram_pieces", (len(parts.array), 1, 1), (x, matrices, parts, pieces)),
        Launch("gram_sums", of_cells, (pieces, matrices, cells, square)),
        polynomial(factor, fourths),
    ]
    whole = factor  # the product of the factors before this one, or the first
    for turn in range(iterations - 1):
        if turn == 0:
            found.append(products(factor, square, product))
        else:  # both products with the factor at once
            made = spares[turn % 2]
            found.append(products(factor, square, product, whole, made))
            whole = made
        found += [products(product, factor, square), polynomial(other)]
        factor, other = other, factor
    made = spares[(iterations - 1) % 2]
    return [
        *found,
        products(factor, whole, made),
        Launch("matrix_products", of_tiles, (made, x, matrices, tiles, y, sums)),
        Launch("matrix_lengths", of_matrices, (norms, sums, fourths, matrices, step, lengths)),
    ]


class DeviceCommonStep:
    """As mpibow.sync.orthogonal.CommonStep, enqueued on the averaging stream: nothing of it comes to the host."""

    def __init__(self, passes: DeviceFlat, tables: Tables, coefficients: Coefficients, iterations: int) -> None:
        self._passes, self._tables = passes, tables
        self._formula = coefficients, iterations
        self._scratch = {name: passes.zeros(shape, dtype) for name, (shape, dtype) in tables.scratch.items()}

    def works(
        self, weights: Any, mean: Any, sums: Any, squares: Any, *, extra: Any, even: float, scale: float,
        shrinks: Sequence[float] = (),
    ) -> Sequence[Callable[[range], None]]:  # fmt: skip
        """As CommonStep.works; sums (1, size or more) are of all ranks, `squares` are left to the gain's own."""
        assert not shrinks, "find_gpu refuses decoupled weight decay here"
        total = sums[0]

        def make(step: Any) -> Sequence[Launch]:
            return launches(self._tables, self._scratch, weights, mean, total, step, *self._formula)

        def run(chunks: range) -> None:
            arrays, numbers = (weights, mean, total), {"gain": extra, "even": even, "scale": scale}
            self._passes.run("spread", arrays, make, writes=True, **numbers)

        return (run,)
