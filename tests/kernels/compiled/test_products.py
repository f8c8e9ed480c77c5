"""Own products against NumPy's: rests of tiles, factors turned, few rows or terms, more than are taken at a time."""

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from mpibow import ops
from mpibow.graph import Array
from mpibow.graph.memory import zeros
from mpibow.kernels.compiled.matmul import multiplied
from mpibow.kernels.compiled.products import DEEP, FEW, multiply_laid, room
from mpibow.kernels.compiled.table import OPERATORS
from tests.kernels.against import compare
from tests.kernels.cases import Case

sides = st.one_of(
    st.integers(1, FEW), st.integers(1, 70), st.sampled_from([48, 96, DEEP - 1, DEEP, 3 * DEEP + 3, 7 * DEEP + 5])
)


def drawn(generator: np.random.Generator, rows: int, columns: int, turned: bool) -> Array:
    """Between numbers that are none, so that a result shows what was read outside."""
    shape = (columns, rows) if turned else (rows, columns)
    whole = np.full((shape[0] + 2, shape[1] + 40), np.nan, np.float32)
    part = whole[1:-1, 20:-20]
    part[...] = generator.standard_normal(shape)
    return part.T if turned else part


@given(sides, sides, sides, st.booleans(), st.booleans(), st.booleans(), st.integers(0, 99))
@example(m=5, n=100, k=7 * DEEP + 5, left=False, right=True, more=True, seed=0)
@example(m=FEW, n=200, k=7 * DEEP + 5, left=False, right=True, more=False, seed=0)
@settings(max_examples=100)
def test_it_is_numpys(m, n, k, left, right, more, seed):
    generator = np.random.default_rng(seed)
    a, b, y = drawn(generator, m, k, left), drawn(generator, k, n, right), drawn(generator, m, n, False)
    added = generator.standard_normal(n).astype(np.float32) if more else None
    expected = a.astype(np.float64) @ b.astype(np.float64) + (0 if added is None else added)
    around = np.asarray(y.base).copy()
    place = np.full(room(m, n, k, transposed=left) + 16, np.nan, np.float32)
    multiplied(a, b, y, place[:-16], added)()
    assert np.isnan(place[-16:]).all()
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6 * k**0.5 * max(1, np.abs(expected).max()))
    around[1:-1, 20:-20] = y
    np.testing.assert_array_equal(np.asarray(y.base), around)  # nothing else was written


@pytest.mark.parametrize("m", [7, 500])
def test_a_factor_that_lies_as_panels(m):
    a, b, y = (np.random.default_rng(m).random(shape, np.float32) for shape in ((m, 272), (4, 272, 16), (m, 64)))
    multiply_laid.command(left=a, right=b, out=y, m=m, n=64, k=272)()
    expected = a.astype(float) @ b.transpose(1, 0, 2).reshape(272, 64)
    np.testing.assert_allclose(y, expected, 1e-5)


def test_a_number_that_is_none_stays_in_its_row_or_column():
    a, b, y = np.ones((9, 17), np.float32), np.ones((17, 33), np.float32), zeros((9, 33), "float32")
    a[4, 5], b[6, 20] = np.nan, np.inf
    multiplied(a, b, y, zeros((room(9, 33, 17),), "float32"))()
    expected = np.full((9, 33), 17.0)
    expected[:, 20], expected[4] = np.inf, np.nan
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("case", [
    Case(ops.Matmul(), ((3, 70, 40), (3, 40, 65))),
    Case(ops.Matmul(), ((2, 300, DEEP + 20), (DEEP + 20, 50))),
    Case(ops.Matmul(), ((5, 1, 7), (5, 7, 1))),
], ids=["many", "deep", "rows and columns"])  # fmt: skip
def test_matmul(case: Case):
    compare(OPERATORS[ops.Matmul], case)
