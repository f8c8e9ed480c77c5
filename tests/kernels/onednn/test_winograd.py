"""Winograd's transforms in exact numbers, and what its convolutions keep beyond being close to NumPy's."""

from collections.abc import Sequence

import numpy as np
import pytest

from mpibow import ops
from mpibow.kernels.onednn.winograd.transforms import TRANSFORMS, Matrix, multiply, transposed
from tests.kernels.cases import INITIAL, Bench, Case
from tests.kernels.onednn import LIBRARY, needs_onednn, operators

WINDOWS = [(3, 1, 8, 16), (3, 1, 4, 16), (3, 1, 7, 14), (5, 0, 8, 16), (5, 2, 8, 16)]  # taps, padding, outputs


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

    def fmul(self, constant, y: float, flags: Sequence[str] = ()) -> float:
        return self._count(constant.constant[0].constant * y, flags)


def rational(matrix: Matrix):
    return np.array(matrix, object)


def matrices(form: int) -> dict[str, Matrix]:
    f = TRANSFORMS[form]
    straight = {"B^T": f.into, "G": f.spread, "A^T": f.out}
    return straight | {"B": transposed(f.into), "G^T": transposed(f.spread), "A": transposed(f.out)}


@pytest.mark.parametrize("form", TRANSFORMS)
def test_a_tile_is_exactly_the_convolution(form):
    f, integers = TRANSFORMS[form], np.random.default_rng(form).integers
    outputs, taps = divmod(form, 10)
    assert (f.outputs, f.taps) == (outputs, taps)
    d, g = (integers(-9, 10, (side, side)).astype(object) for side in (f.size, taps))
    into, spread, out = rational(f.into), rational(f.spread), rational(f.out)
    y = out @ ((spread @ g @ spread.T) * (into @ d @ into.T)) @ out.T
    expected = [[(g * d[i : i + taps, j : j + taps]).sum() for j in range(outputs)] for i in range(outputs)]
    np.testing.assert_array_equal(y, np.array(expected, object))


@pytest.mark.parametrize("form", TRANSFORMS)
def test_the_code_multiplies_by_the_matrix(form):
    generator = np.random.default_rng(form)
    for name, matrix in matrices(form).items():
        lines = generator.standard_normal(len(matrix[0]))
        expected = rational(matrix).astype(float) @ lines
        np.testing.assert_allclose(multiply(Builder(), matrix, list(lines)), expected, rtol=1e-14, err_msg=name)


def test_points_in_pairs_share_their_work():
    """Instructions: for each of a tile's rows and columns, so every one counts."""
    counts = {}
    for form in TRANSFORMS:
        for name, matrix in matrices(form).items():
            builder = Builder()
            multiply(builder, matrix, [1.0] * len(matrix[0]))
            counts.setdefault(form, {})[name] = builder.instructions
    assert counts == {
        23: {"B^T": 4, "G": 5, "A^T": 4, "B": 4, "G^T": 5, "A": 2},
        25: {"B^T": 12, "G": 15, "A^T": 8, "B": 16, "G^T": 15, "A": 4},
        43: {"B^T": 12, "G": 11, "A^T": 12, "B": 16, "G^T": 11, "A": 8},
    }


def bench(taps: int, padding: int, high: int, wide: int, n: int = 3, winograd: bool = True) -> Bench:
    op = ops.Conv2d(32, (taps, taps), (1, 1), (padding, padding), False, INITIAL)
    reach = taps - 1 - 2 * padding
    case = Case(op, ((n, 48, high + reach, wide + reach),))
    return Bench(case, operators(LIBRARY, winograd)[ops.Conv2d], "float32", given=("aBcd16b",))


def computed(made: Bench) -> list:
    made.forward()
    made.backward()
    return [made.y, made.dx[0], made.dw["weight"]]


@needs_onednn
@pytest.mark.parametrize(("taps", "padding", "high", "wide"), WINDOWS)
def test_gradients_are_the_adjoints(taps, padding, high, wide):
    """<dy, y> = <dx, x> = <dw, w>: convolution is linear in both. Off by less than one rounding of all its products."""
    made = bench(taps, padding, high, wide)
    y, dx, dw = computed(made)
    products = made.dy.astype(float) * y
    off = 6e-8 * float(np.abs(products).sum())
    for gradient, of in ((dx, made.x[0]), (dw, made.w["weight"])):
        assert abs(float((gradient.astype(float) * of).sum() - products.sum())) < off


@needs_onednn
@pytest.mark.parametrize(("taps", "padding", "high", "wide"), WINDOWS)
def test_the_same_bits_every_time_whatever_the_batch(taps, padding, high, wide):
    whole, alone = bench(taps, padding, high, wide), bench(taps, padding, high, wide, 1)
    first, second = [array.copy() for array in computed(whole)], computed(bench(taps, padding, high, wide))
    for array, again in zip(first, second, strict=True):
        np.testing.assert_array_equal(array, again)
    alone.x[0][...], alone.w["weight"][...], alone.dy[...] = whole.x[0][1:2], whole.w["weight"], whole.dy[1:2]
    y, dx, _ = computed(alone)
    np.testing.assert_array_equal(y, first[0][1:2])
    np.testing.assert_array_equal(dx, first[1][1:2])


@needs_onednn
@pytest.mark.parametrize(("taps", "padding", "high", "wide"), WINDOWS)
def test_it_can_be_left_to_onednn(taps, padding, high, wide):
    fewer, plain = bench(taps, padding, high, wide), bench(taps, padding, high, wide, winograd=False)
    assert set(fewer.buffers.forward) == ({"u", "v", "m", "edge"} if LIBRARY.wide else {"scratch"})
    assert set(plain.buffers.forward) == {"scratch"}
