"""Orthogonal steps of every kernel set: by hand, against singular values, what they keep, wherever matrices lie."""

import numpy as np
import pytest

from mpibow.graph import Array, Shape
from mpibow.kernels import FlatKernels, Matrix
from mpibow.kernels.numpy.orthogonal import COEFFICIENTS, ITERATIONS

# What five times s <- 3.4445 s - 4.7750 s^3 + 2.0315 s^5 makes of a singular value.
FIVE = {0.6: 0.7228762, 0.8: 1.1192039}
BLOCK = 16  # outputs that lie side by side where weights are packed


def place(shape: Shape, start: int = 0, packed: bool = False, turned: bool = False) -> Matrix:
    """Row by row; or `packed`: BLOCK rows side by side, column after column. `turned`: its transpose lies so."""
    high, wide = shape[::-1] if turned else shape
    rows, columns = np.arange(high), np.arange(wide)
    if packed:
        rows, columns = rows // BLOCK * BLOCK * wide + rows % BLOCK, columns * BLOCK
    else:
        rows *= wide
    rows, columns = (columns, rows) if turned else (rows, columns)
    return Matrix(rows + start, columns)


def places(matrix: Matrix) -> Array:
    found = matrix.rows[:, np.newaxis] + matrix.columns
    return found


def step_of(flat: FlatKernels, matrix: Array, scale: float, packed: bool = False, turned: bool = False) -> Array:
    """What is made of the matrix, lying anywhere between elements that nobody may touch."""
    where = place(matrix.shape, 5, packed, turned)
    total = np.full(int(places(where).max()) + 7, np.nan, matrix.dtype)
    total[places(where)] = matrix
    before, step = total.copy(), np.full_like(total, 7)
    flat.orthogonal([where], matrix.dtype)(step, total, 0, scale=scale)
    np.testing.assert_array_equal(total, before)
    made = step[places(where)]
    step[places(where)] = 7
    assert (step == 7).all()
    return made


def orthogonal(flat: FlatKernels, matrix: Array) -> Array:
    """Of a matrix of any shape."""
    return orthogonal(flat, matrix.T).T if matrix.shape[0] > matrix.shape[1] else step_of(flat, matrix, 1.0)


def norm(array: Array) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


def with_values(rows: int, columns: int, values: Array, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    left, right = (np.linalg.qr(generator.standard_normal((m, rows)))[0] for m in (rows, columns))
    found = (left * values) @ right.T
    return found


def expected(matrix: Array, scale: float) -> Array:
    """Of the singular values."""
    first, third, fifth = COEFFICIENTS
    left, s, right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    x = s / np.linalg.norm(s)
    for _ in range(ITERATIONS):
        x = first * x + third * x**3 + fifth * x**5
    found = (left * (x / np.linalg.norm(x))) @ right * np.linalg.norm(s) * scale
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_orthogonal_matrix_stays(flat: FlatKernels, dtype):
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]], dtype)
    for matrix in (rotation, -3 * rotation, rotation[:1], rotation[:, :1], np.eye(3, 5, dtype=dtype)):
        found = orthogonal(flat, matrix)
        np.testing.assert_allclose(found, matrix, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)


def test_of_a_diagonal_matrix_by_hand(flat: FlatKernels):
    """diag(3, 4) / 5 has singular values 0.6 and 0.8, each of which takes its own way; then 5 again."""
    whole = np.hypot(FIVE[0.6], FIVE[0.8])
    for dtype in ("float32", "float64"):
        found = orthogonal(flat, np.diag([3.0, -4.0]).astype(dtype))
        np.testing.assert_allclose(found, 5 / whole * np.diag([FIVE[0.6], -FIVE[0.8]]), rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 2), (17, 33)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zero_stays(flat: FlatKernels, shape: Shape, dtype):
    assert not orthogonal(flat, np.zeros(shape, dtype)).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_told(flat: FlatKernels, bad, dtype):
    for shape in ((2, 2), (17, 40)):
        matrix = np.eye(*shape, dtype=dtype)
        matrix[0, 1] = bad
        with np.errstate(invalid="ignore"):
            assert np.isnan(step_of(flat, matrix, 0.5)).all()


@pytest.mark.parametrize("size", [1e-44, 1e-38, 1e-30, 1e30, 1e38])
def test_in_float32_no_square_overflows_or_vanishes(flat: FlatKernels, size):
    """Denormal numbers have few digits, and neither more has what is made of them."""
    for matrix in (np.diag([1.0, 1.0]), np.eye(20)[::-1]):
        found = orthogonal(flat, (size * matrix).astype(np.float32))
        np.testing.assert_allclose(found, size * matrix, rtol=1e-5, atol=1.5e-45)


def test_even_a_norm_may_be_beyond_float32(flat: FlatKernels):
    found = orthogonal(flat, np.diag(np.array([3e38, 3e38], np.float32)))
    np.testing.assert_allclose(found, np.diag([3e38, 3e38]), rtol=1e-5)


SHAPES = (
    (1, 1), (1, 2), (1, 97), (2, 2), (3, 1024), (7, 13), (10, 64), (15, 16), (16, 16), (16, 27), (16, 144), (17, 17),
    (31, 289), (32, 288), (47, 113), (48, 100), (64, 576), (128, 131),
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_alone_change(flat: FlatKernels, shape, dtype):
    """Wherever the matrix lies; in float32 what rounding adds to a weak direction becomes longer with it."""
    matrix = with_values(*shape, np.geomspace(1.0, 0.01, shape[0]), seed=sum(shape)).astype(dtype)
    share = 2e-4 if dtype == "float32" else 1e-12
    wanted = expected(matrix, 0.25)
    for packed in (False, True):
        for turned in (False, True):
            found = step_of(flat, matrix, 0.25, packed, turned)
            assert norm(found - wanted) < share * norm(wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("iterations", [3, 5, 6])
def test_of_fixed_length_it_is_what_the_iterations_make(flat: FlatKernels, iterations, dtype):
    """As Jordan's program has them, one after the other; in place, and however long the matrix is."""
    first, third, fifth = COEFFICIENTS
    for size in (1e-20, 3.0):
        matrix = (size * np.random.default_rng(0).standard_normal((17, 40))).astype(dtype)
        wide = matrix.astype(np.float64)
        x = wide / np.linalg.norm(wide)
        for _ in range(iterations):
            square = x @ x.T
            x = first * x + (third * square + fifth * square @ square) @ x
        where = place(matrix.shape, 5)
        total = np.full(int(places(where).max()) + 7, 7, dtype)
        total[places(where)] = matrix
        flat.orthogonal([where], dtype, iterations)(total, total, 0, scale=0.2, fixed=True)
        assert norm(total[places(where)] - 0.2 * x) < (1e-5 if dtype == "float32" else 1e-12) * norm(0.2 * x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matrices_know_nothing_of_each_other(flat: FlatKernels, dtype):
    """Made in any order in the same room, or alone: the same bits."""
    shapes, start = ((20, 50), (1, 3), (16, 144), (33, 33), (2, 300)), 0
    found = []
    for number, shape in enumerate(shapes):
        found.append(place(shape, start, packed=number % 2 == 0))
        start = int(places(found[-1]).max()) + 1
    total = np.random.default_rng(3).standard_normal(start).astype(dtype)
    alone, forwards, backwards = (np.zeros_like(total) for _ in range(3))
    for matrix in found:
        flat.orthogonal([matrix], dtype)(alone, total, 0, scale=0.75)
    make = flat.orthogonal(found, dtype)
    for numbers, step in ((range(5), forwards), (range(4, -1, -1), backwards)):
        for number in numbers:
            make(step, total, number, scale=0.75)
        np.testing.assert_array_equal(step, alone)
