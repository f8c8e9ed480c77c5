"""Winograd's transforms in exact numbers, and what its convolutions keep beyond being close to NumPy's."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpibow import ops
from mpibow.config import load_mapping
from mpibow.job import kernels_of
from mpibow.kernels import numpy as reference
from tests.kernels.cases import INITIAL, Bench, Case

pytest.importorskip("numba", reason="numba is not installed: pip install 'mpibow[cpu]'")
from mpibow.kernels.onednn import library as dnn
from mpibow.kernels.onednn import operators, winograd
from mpibow.kernels.onednn.winograd.transforms import TRANSFORMS, Matrix, multiply, transposed

FOUND = dnn.find_library()
needs_library = pytest.mark.skipif(FOUND is None, reason="no libdnnl found: pip install 'mpibow[cpu]'")
WINDOWS = [(3, 1), (5, 0), (5, 2)]  # taps and padding


class Builder:
    """Computes what it is told to build, and counts: a product that is added at once is no instruction of its own."""

    def __init__(self) -> None:
        self.instructions = 0

    def _count(self, value: float, flags: Sequence[str]) -> float:
        self.instructions += not flags
        return value

    def fadd(self, x: float, y: float, flags: Sequence[str] = ()) -> float:
        self.instructions += bool(flags)
        return self._count(x + y, flags)

    def fsub(self, x: float, y: float) -> float:
        return self._count(x - y, ())

    def fmul(self, constant: Any, y: float, flags: Sequence[str] = ()) -> float:
        return self._count(constant.constant[0].constant * y, flags)


def rational(matrix: Matrix) -> Any:
    return np.array(matrix, object)


def matrices(taps: int) -> dict[str, Matrix]:
    f = TRANSFORMS[taps]
    straight = {"B^T": f.into, "G": f.spread, "A^T": f.out}
    return straight | {"B": transposed(f.into), "G^T": transposed(f.spread), "A": transposed(f.out)}


@pytest.mark.parametrize("taps", TRANSFORMS)
@given(data=st.data())
def test_a_tile_is_exactly_the_convolution(taps: int, data: st.DataObject) -> None:
    f, numbers = TRANSFORMS[taps], st.integers(-9, 9)
    d = np.array(data.draw(st.lists(numbers, min_size=f.size**2, max_size=f.size**2)), object).reshape(f.size, f.size)
    g = np.array(data.draw(st.lists(numbers, min_size=taps**2, max_size=taps**2)), object).reshape(taps, taps)
    into, spread, out = rational(f.into), rational(f.spread), rational(f.out)
    y = out @ ((spread @ g @ spread.T) * (into @ d @ into.T)) @ out.T
    expected = [[(g * d[i : i + taps, j : j + taps]).sum() for j in range(2)] for i in range(2)]
    np.testing.assert_array_equal(y, np.array(expected, object))


def test_three_taps_are_those_of_the_paper() -> None:
    half = Fraction(1, 2)
    f = TRANSFORMS[3]
    assert f.into == ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1))
    assert f.spread == ((1, 0, 0), (half, half, half), (half, -half, half), (0, 0, 1))
    assert f.out == ((1, 1, 1, 0), (0, 1, -1, 1))


@pytest.mark.parametrize("taps", TRANSFORMS)
def test_the_code_multiplies_by_the_matrix(taps: int) -> None:
    generator = np.random.default_rng(taps)
    for name, matrix in matrices(taps).items():
        lines = generator.standard_normal(len(matrix[0]))
        expected = rational(matrix).astype(float) @ lines
        np.testing.assert_allclose(multiply(Builder(), matrix, list(lines)), expected, rtol=1e-14, err_msg=name)


def test_points_in_pairs_share_their_work() -> None:
    """Instructions: for each of a tile's rows and columns, so every one counts."""
    counts = {}
    for taps in TRANSFORMS:
        for name, matrix in matrices(taps).items():
            builder = Builder()
            multiply(builder, matrix, [1.0] * len(matrix[0]))
            counts[name, taps] = builder.instructions
    assert {name: count for (name, taps), count in counts.items() if taps == 3} == {
        "B^T": 4, "G": 5, "A^T": 4, "B": 4, "G^T": 5, "A": 2,
    }  # fmt: skip
    assert {name: count for (name, taps), count in counts.items() if taps == 5} == {
        "B^T": 12, "G": 15, "A^T": 8, "B": 16, "G^T": 15, "A": 4,
    }  # fmt: skip


def convolution(taps: int, padding: int, n: int = 3) -> Case:
    op = ops.Conv2d(32, (taps, taps), (1, 1), (padding, padding), False, INITIAL)
    reach = taps - 1 - 2 * padding
    return Case(op, ((n, 48, 8 + reach, 16 + reach),))


def bench(taps: int, padding: int, n: int = 3, fewer: bool = True) -> Bench:
    assert FOUND is not None
    kernel = operators(dnn.load(FOUND), winograd=fewer)[ops.Conv2d]
    return Bench(convolution(taps, padding, n), kernel, "float32", given=("aBcd16b",))


def computed(made: Bench) -> list[Any]:
    made.forward()
    made.backward()
    return [made.y, made.dx[0], made.dw["weight"]]


@needs_library
@pytest.mark.parametrize("fewer", [True, False])
@pytest.mark.parametrize(("taps", "padding"), WINDOWS)
def test_gradients_are_the_adjoints(taps: int, padding: int, fewer: bool) -> None:
    """<dy, y> = <dx, x> = <dw, w>: convolution is linear in both. Off by less than one rounding of all its products."""
    made = bench(taps, padding, fewer=fewer)
    y, dx, dw = computed(made)
    products = made.dy.astype(float) * y
    off = 6e-8 * float(np.abs(products).sum())
    for gradient, of in ((dx, made.x[0]), (dw, made.w["weight"])):
        assert abs(float((gradient.astype(float) * of).sum() - products.sum())) < off


@needs_library
@pytest.mark.parametrize("fewer", [True, False])
@pytest.mark.parametrize(("taps", "padding"), WINDOWS)
def test_the_same_bits_every_time_whatever_the_batch(taps: int, padding: int, fewer: bool) -> None:
    whole, alone = bench(taps, padding, fewer=fewer), bench(taps, padding, 1, fewer)
    first, second = [array.copy() for array in computed(whole)], computed(bench(taps, padding, fewer=fewer))
    for array, again in zip(first, second, strict=True):
        np.testing.assert_array_equal(array, again)
    alone.x[0][...], alone.w["weight"][...], alone.dy[...] = whole.x[0][1:2], whole.w["weight"], whole.dy[1:2]
    y, dx, _ = computed(alone)
    np.testing.assert_array_equal(y, first[0][1:2])
    np.testing.assert_array_equal(dx, first[1][1:2])


@needs_library
@pytest.mark.parametrize(("taps", "padding"), WINDOWS)
def test_without_it_onednn_convolves(taps: int, padding: int) -> None:
    """Within the bound of any operator; by its own buffers, and by other products, so not in the same bits."""
    fewer, plain = bench(taps, padding), bench(taps, padding, fewer=False)
    exact = Bench(convolution(taps, padding), reference.OPERATORS[ops.Conv2d], "float64")
    exact.x, exact.dy = (fewer.x[0].astype(np.float64),), fewer.dy.astype(np.float64)
    exact.w = {"weight": fewer.w["weight"].astype(np.float64)}
    found = computed(plain)
    lengths = (48 * taps**2, 32 * taps**2, 3 * plain.y.shape[2] * plain.y.shape[3])
    for got, expected, length in zip(found, computed(exact), lengths, strict=True):
        assert np.abs(got - expected).max() <= 1e-6 * np.sqrt(length) * np.abs(expected).max()
    assert set(plain.buffers.forward) == set(plain.buffers.backward) == {"scratch"}
    assert FOUND is not None
    if dnn.load(FOUND).isa.startswith(("AVX-512", "AMX")):  # elsewhere it is not taken
        assert fewer.shapes.formats == winograd.FORMATS
        assert set(fewer.buffers.forward) == {"u", "v", "m"}
        assert not np.array_equal(fewer.forward(), found[0])


@needs_library
def test_the_setting_turns_it_off() -> None:
    kernels = {
        fewer: kernels_of(load_mapping({"onednn": {"winograd": fewer}}, model_given=True, data_given=True))[0]
        for fewer in (True, False)
    }
    case = convolution(3, 1)
    made = {fewer: Bench(case, chosen.operators[ops.Conv2d], "float32").buffers for fewer, chosen in kernels.items()}
    assert set(made[False].forward) == {"scratch"}
    assert FOUND is not None
    if dnn.load(FOUND).isa.startswith(("AVX-512", "AMX")):
        assert set(made[True].forward) == {"u", "v", "m"}
