"""The orthogonal common step's kernels on the host: each against NumPy, all of them against the step's definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibow.graph.formats import canonical, pack
from mpibow.graph.graph import Array, Shape, Weight
from mpibow.graph.layout import Layout, Span
from mpibow.kernels.cuda import flat
from mpibow.kernels.cuda.kernels import Launch
from mpibow.kernels.cuda.orthogonal import PIECE, TILE, Tables, launches
from mpibow.ops.initialisers import Constant as Initial
from mpibow.sync.orthogonal import COEFFICIENTS, ITERATIONS, matrices_of, spread
from tests.kernels.cuda.host import needs_compiler, prepared, run_all

pytestmark = needs_compiler
prepare = prepared("orthogonal.cu")
CHECKS = settings(deadline=None, max_examples=15)
LAST = {4: "acdb"}  # channels innermost, as GPUs have convolutions
GAIN, EVEN, SCALE = 2.0, 3.0, 0.25

# Wide, tall and square ones, a vector among them; with sides of a tile, of one more, and of more than two.
SHAPES: tuple[Shape, ...] = ((5, 3, 2, 2), (7,), (130, 3), (1, 9), (64, 64), (70,), (65, 66), (9, 1), (3, PIECE + 70))


def polynomial(square: Array) -> Array:
    first, third, fifth = COEFFICIENTS
    return first * np.eye(len(square), dtype=square.dtype) + third * square + fifth * (square @ square)


def layout_of(shapes: Sequence[Shape]) -> Layout:
    """As a GPU's kernels have one; what is not of their size is padding."""
    spans, end = [], 0
    for number, shape in enumerate(shapes):
        tag, size = LAST.get(len(shape), canonical(shape)), int(np.prod(shape))
        spans.append(Span(f"weight{number}", end, size, shape, Weight(shape, Initial(), 1, 1), tag))
        end += -(-size // 16) * 16
    return Layout(tuple(spans), end, end)


@dataclass
class Bench:
    """Sums of steps over all matrices, what is made of them, and the launches that make it."""

    layout: Layout
    sums: Array  # and the tail that is sent with them
    rows: int = 2

    def __post_init__(self) -> None:
        self.tables = Tables(tuple(matrices_of(self.layout)), self.layout.size)
        self.scratch = {name: np.zeros(shape, dtype) for name, (shape, dtype) in self.tables.scratch.items()}
        generator, size = np.random.default_rng(7), self.layout.size
        whole = np.full((self.rows, size + 4), np.nan, np.float32)  # NaN between the rows
        whole[:, :size] = generator.standard_normal((self.rows, size))
        self.weights, self.mean = whole[:, :size], generator.standard_normal(size).astype(np.float32)
        self.step = np.zeros(1, flat.STEP)
        self.step["gain"], self.step["even"], self.step["scale"] = GAIN, EVEN, SCALE

    @property
    def launches(self) -> list[Launch]:
        arrays = self.tables, self.scratch, self.weights, self.mean, self.sums, self.step
        return launches(*arrays, COEFFICIENTS, ITERATIONS)

    def run(self, kernel: str, number: int = 0) -> None:
        """The `number`-th launch of one kernel alone."""
        run_all([each for each in self.launches if each.kernel == kernel][number])

    def matrix(self, number: int, array: Array, lies: bool = True) -> Array:
        """A matrix in x, or y, where it `lies` as in flat arrays: (rows, columns), rows <= columns."""
        m = self.tables.matrices[number]
        own = array[m["own"] : m["own"] + m["rows"] * m["columns"]]
        return own.reshape(m["columns"], m["rows"]).T if lies and m["turned"] else own.reshape(m["rows"], m["columns"])

    def step_of(self, number: int) -> Array:
        """The matrix (rows, columns) among the sums."""
        m = self.tables.matrices[number]
        own = self.sums[m["place"] : m["place"] + m["rows"] * m["columns"]]
        return own.reshape(m["columns"], m["rows"]).T if m["turned"] else own.reshape(m["rows"], m["columns"])

    def square(self, number: int, array: Array) -> Array:
        m = self.tables.matrices[number]
        return array[m["square"] : m["square"] + m["rows"] ** 2].reshape(m["rows"], m["rows"])

    def fill(self, *names: str) -> None:
        """Scratch as random numbers, positive where a sum's or a norm's."""
        generator = np.random.default_rng(3)
        for name in names:
            array = self.scratch[name]
            array[...] = generator.standard_normal(array.shape) if array.dtype == np.float32 else 1.0
            if array.dtype == np.float64:
                array += generator.random(array.shape)

    @property
    def numbers(self) -> range:
        return range(len(self.tables.spans))


def bench(shapes: Sequence[Shape] = SHAPES, seed: int = 0, sizes: Sequence[float] = (1.0,)) -> Bench:
    """Normal steps, of `sizes` in turn."""
    generator, layout = np.random.default_rng(seed), layout_of(shapes)
    sums = np.zeros(layout.size + flat.TAIL, np.float32)
    sums[-flat.TAIL :] = np.nan
    for number, span in enumerate(layout.spans):
        array = generator.standard_normal(span.shape).astype(np.float32) * np.float32(sizes[number % len(sizes)])
        sums[span.offset : span.offset + span.size] = pack(array, span.format).reshape(-1)
    return Bench(layout, sums)


def close(got: Array, wanted: Array, share: float = 1e-6) -> None:
    """Within a share of the largest."""
    np.testing.assert_allclose(got, wanted, rtol=0, atol=share * max(float(abs(wanted).max(initial=0.0)), 1e-45))


# The tables


def test_tables_by_hand() -> None:
    """A convolution of 4 outputs of 2 channels 3 x 3, a vector of 20, a dense layer of 130 outputs and 70 inputs."""
    convolution, _, dense = layout_of(((4, 2, 3, 3), (20,), (130, 70))).spans
    tables = Tables((convolution, dense), 9216)
    first, second = tables.matrices
    assert [first[name] for name in ("place", "rows", "columns", "turned", "pieces")] == [0, 4, 18, 0, 1]
    assert [second[name] for name in ("place", "rows", "columns", "turned", "pieces")] == [112, 70, 130, 1, 1]
    assert [second[name] for name in ("own", "square", "piece", "tile", "cell")] == [80, 16, 16, 1, 1]
    assert [second[name] for name in ("tiles", "cells")] == [6, 4]
    assert tables.tiles["matrix"].tolist() == [0] + [1] * 6
    corners = [(0, 0), (0, 0), (0, 64), (0, 128), (64, 0), (64, 64), (64, 128)]
    assert list(zip(tables.tiles["row"], tables.tiles["column"], strict=True)) == corners
    assert tables.owners.tolist() == [0] * 5 + [-1] * 2 + [1] * 569
    assert tables.scratch["x"] == ((80 + 9104,), "float32")
    assert tables.scratch["squares"] == ((6, 16 + 4900), "float32")
    assert tables.scratch_bytes == 4 * (2 * 9184 + 7 * 4916) + 8 * (7 + 5) + 12 * 2


def test_a_long_matrix_is_cut_into_pieces() -> None:
    tables = Tables(layout_of([(70, 2 * PIECE + 1)]).spans, 70 * (2 * PIECE + 1) + 10)
    assert tables.matrices["pieces"].tolist() == [3]
    assert len(tables.pieces) == 3 * 4
    assert tables.pieces["piece"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert tables.pieces["column"].tolist() == [0, TILE] * 6


def test_launches_are_as_many_whatever_the_matrices() -> None:
    assert len(bench().launches) == len(bench([(2, 3)]).launches) == 22
    assert [each.kernel for each in bench([(9,)]).launches] == ["add_common"]


# Each kernel


def test_norms() -> None:
    """Of wide and tall ones, also where a square of them is beyond float32."""
    found = bench(sizes=(1.0, 1e-30, 1e30))
    found.run("matrix_squares")
    found.run("matrix_norms")
    wanted = [np.linalg.norm(found.step_of(n).astype(np.float64)) for n in found.numbers]
    np.testing.assert_allclose(found.scratch["norms"], wanted, rtol=1e-13)


def test_normalised_ones_have_rows_no_longer_than_columns() -> None:
    found = bench(sizes=(1e30, 1e-30))
    found.fill("norms")
    found.scratch["norms"][2] = 0.0
    found.run("normalised")
    for n in found.numbers:
        x, norm = found.matrix(n, found.scratch["x"], lies=False), found.scratch["norms"][n]
        assert x.shape[0] <= x.shape[1]
        wanted = (found.step_of(n).astype(np.float64) / norm).astype(np.float32) if norm else np.zeros_like(x)
        np.testing.assert_array_equal(x, wanted)


def test_gram_matrices() -> None:
    found = bench([*SHAPES, (70, 2 * PIECE + 17)])
    found.fill("x")
    found.run("gram_pieces")
    found.run("gram_sums")
    for n in found.numbers:
        x, gram = found.matrix(n, found.scratch["x"], lies=False), found.square(n, found.scratch["squares"][0])
        close(gram, x.astype(np.float64) @ x.T.astype(np.float64), 1e-5)
        np.testing.assert_array_equal(gram, gram.T)


def test_polynomials_of_squares() -> None:
    found = bench()
    found.fill("squares")
    found.run("polynomials")
    squares, fourths = found.scratch["squares"], iter(found.scratch["fourths"])
    for n in found.numbers:
        square = found.square(n, squares[0]).astype(np.float64)
        close(found.square(n, squares[2]), polynomial(square), 1e-5)
        tiles = [sum(next(fourths) for _ in range(found.tables.matrices[n]["cells"]))]
        np.testing.assert_allclose(tiles, np.linalg.norm(square @ square) ** 2, rtol=1e-5)
    found.scratch["fourths"][:] = -1
    found.run("polynomials", 1)  # of which no sums are wanted
    assert (found.scratch["fourths"] == -1).all()
    close(found.square(0, squares[3]), polynomial(found.square(0, squares[0]).astype(np.float64)), 1e-5)


def test_products_of_squares_one_or_two_at_a_time() -> None:
    found = bench()
    found.fill("squares")
    squares = found.scratch["squares"]
    square, factor, other = (squares[i].astype(np.float64) for i in (0, 2, 3))
    found.run("square_products", 2)  # the second factor (3) times the square (0), and times the first factor (2)
    for n in found.numbers:
        close(found.square(n, squares[1]), found.square(n, other) @ found.square(n, square), 1e-5)
        close(found.square(n, squares[5]), found.square(n, other) @ found.square(n, factor), 1e-5)
    found.fill("squares")
    found.run("square_products", 0)
    for n in found.numbers:
        close(found.square(n, squares[1]), found.square(n, factor) @ found.square(n, square), 1e-5)


def test_products_with_matrices_lie_as_they_did() -> None:
    found = bench()
    found.fill("squares", "x")
    found.run("matrix_products")
    for n in found.numbers:
        whole = found.square(n, found.scratch["squares"][4]).astype(np.float64)
        y = whole @ found.matrix(n, found.scratch["x"], lies=False)
        close(found.matrix(n, found.scratch["y"]), y, 1e-5)
        m = found.tables.matrices[n]
        squares = found.scratch["sums"][m["tile"] : m["tile"] + m["tiles"]]
        np.testing.assert_allclose(squares.sum(), np.linalg.norm(y) ** 2, rtol=1e-5)


def test_lengths_by_hand() -> None:
    """|V| 5 and |y| 2, of four rows. |S^2|^2 = 2^-8: the reach is 1/2 times sqrt(4), so 1 times the gain."""
    found = bench([(4, 6)])
    found.scratch["norms"][0], found.scratch["sums"][:], found.scratch["fourths"][:] = 5.0, 4.0, 2.0**-8
    for gain, even, length in ((2.0, 3.0, 5.0), (2.0, 1.0, 2.5), (0.0, 1.0, 0.0), (np.nan, 1.0, 2.5)):
        found.step["gain"], found.step["even"] = gain, even
        found.run("matrix_lengths")
        assert found.scratch["lengths"].tolist() == [length]
    found.scratch["norms"][0], found.scratch["sums"][:] = 0.0, 0.0
    found.run("matrix_lengths")
    assert found.scratch["lengths"].tolist() == [0.0]


def test_steps_are_added() -> None:
    """Of vectors and padding the gain, of matrices what is in y; whatever the length, padding stays."""
    found = bench()
    found.fill("lengths")
    for n in found.numbers:
        found.matrix(n, found.scratch["y"])[...] = n + 1.0
    found.scratch["lengths"][2] = np.nan
    u, number = found.sums[: found.layout.size], np.float32
    wanted = number(GAIN) * u
    for n, m in enumerate(found.tables.matrices):
        wanted[m["place"] : m["place"] + m["rows"] * m["columns"]] = found.scratch["lengths"][n] * number(n + 1)
    rows, mean = found.weights + wanted, (found.mean + number(SCALE) * u) + wanted
    found.run("add_common")
    np.testing.assert_array_equal(found.weights, rows)
    np.testing.assert_array_equal(found.mean, mean)


# All of them


def made(found: Bench, backwards: bool = False) -> tuple[Array, Array]:
    """What the first row and the mean moved by, from 0."""
    found.weights[:], found.mean[:] = 0, 0
    run_all(found.launches, backwards)
    np.testing.assert_array_equal(found.weights[1:], np.broadcast_to(found.weights[0], found.weights[1:].shape))
    return found.weights[0].copy(), found.mean.copy()


def check(found: Bench) -> None:
    """As mpibow.sync.orthogonal has it, every matrix within a share of its length."""
    step, mean = made(found)
    sums, layout = found.sums[: found.layout.size], found.layout
    with np.errstate(all="ignore"):
        wanted = spread(sums, layout, GAIN, EVEN)
        for span in layout.spans:
            place = slice(span.offset, span.offset + span.size)
            np.testing.assert_array_equal(np.isnan(step[place]), np.isnan(wanted[place]))
            length = float(np.linalg.norm(wanted[place].astype(np.float64)))
            if np.isfinite(length):
                np.testing.assert_allclose(step[place], wanted[place], rtol=1e-5, atol=1e-3 * length)
        np.testing.assert_array_equal(mean, np.float32(SCALE) * sums + step)
    padding = np.ones(layout.size, bool)
    for span in layout.spans:
        padding[span.offset : span.offset + span.size] = False
    assert not step[padding].any()


def test_the_step_is_the_hosts() -> None:
    check(bench())
    check(bench(sizes=(1e-30, 1e30), seed=1))


SIDES = st.integers(1, 70)


@given(
    st.lists(st.one_of(SIDES.map(lambda n: (n,)), st.tuples(SIDES, SIDES)), min_size=1, max_size=3),
    st.integers(0, 99), st.sampled_from([1.0, 1e-30, 1e30, 0.0]),
)  # fmt: skip
@CHECKS
def test_of_any_shapes(shapes: list[Shape], seed: int, size: float) -> None:
    check(bench(shapes, seed, (1.0, size)))


def test_no_bit_depends_on_which_block_comes_first() -> None:
    for one, other in zip(made(bench()), made(bench(), backwards=True), strict=True):
        np.testing.assert_array_equal(one, other)


def test_zero_stays_and_what_is_not_finite_is_told_of_its_own_matrix_alone() -> None:
    found = bench([(5, 7), (9,), (7, 5), (3, 4), (2, 70)])
    for number, value in ((0, 0.0), (2, np.nan), (3, np.inf)):
        span = found.layout.spans[number]
        found.sums[span.offset : span.offset + (span.size if number == 0 else 1)] = value
    check(found)
    named = found.layout.unpacked(found.weights[0])
    assert not named["weight0"].any()
    assert np.isnan(named["weight2"]).all()
    assert np.isnan(named["weight3"]).all()
    assert np.isfinite(named["weight1"]).all()
    assert np.isfinite(named["weight4"]).all()


@pytest.mark.parametrize("tag", ["ba", "Ab16a"])
def test_other_layouts_are_none_of_a_gpus(tag: str) -> None:
    span = Span("weight", 0, 96, (6, 16), Weight((6, 16), Initial(), 1, 1), tag)
    with pytest.raises(AssertionError):
        Tables((span,), 96).matrices  # noqa: B018


def test_matrices_are_those_of_the_layout() -> None:
    layout: Any = layout_of(((300, 300), (4, 5), (7,)))
    assert [span.shape for span in matrices_of(layout)] == [(4, 5)]  # what is too large keeps the mean step
