"""Batch normalisation in blocks of 16 channels beside NumPy's in float64, and where rounding could tell it apart."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Kernel, Shapes, as_given
from mpibow.kernels.compiled import batch_norm
from mpibow.ops.fused import NormAddRelu
from tests.kernels.against import check, twin
from tests.kernels.cases import Bench, Case
from tests.refusals import refuses

TAG = "aBcd16b"
KERNEL = Kernel(batch_norm.forward, batch_norm.backward, batch_norm.buffers, as_given)
NORM = ops.BatchNorm(1e-3, 0.1)
KINDS = {  # the operator, its inputs
    "plain": (NORM, 1),
    "relu": (NormAddRelu(NORM, False), 1),
    "sum": (NormAddRelu(NORM, True), 2),
}


def bench(kind: str, shape: tuple[int, ...], seed: int = 0, wanted: tuple[int, ...] | None = None) -> Bench:
    op, inputs = KINDS[kind]
    return Bench(Case(op, (shape,) * inputs), KERNEL, "float32", seed, True, (TAG,) * inputs, wanted)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("plain", ()), ("plain", (0,)), ("relu", ()), ("relu", (0,)), *[("sum", w) for w in ((), (0,), (1,), (0, 1))]],
)
@given(st.integers(1, 4), st.sampled_from([16, 32, 48]), st.integers(1, 23), st.integers(1, 17), st.integers(0, 1000))
@settings(max_examples=20)
def test_it_is_numpys(kind, wanted, n, c, h, w, seed):
    """Images of a pixel, of less than a chunk, of three chunks and a rest that four registers do not divide."""
    if n * h * w > 3:  # the variance of two may be next to nothing
        check(bench(kind, (n, c, h, w), seed, wanted))


@pytest.mark.parametrize("area", [(1, 1), (1, 15), (1, 17), (1, 127), (1, 128), (1, 129), (16, 16), (3, 131)])
@pytest.mark.parametrize("kind", KINDS)
def test_at_the_ends_of_chunks(kind, area):
    check(bench(kind, (5, 16, *area)))


@pytest.mark.parametrize("kind", KINDS)
def test_deviations_small_beside_the_mean(kind):
    """Of mean 1000 and deviation 1. y = scale x + shift is off by shift's rounding and half a unit of its own; so are
    x - mean, by the mean's, and what is made of it. Variances keep float32's accuracy: they are of deviations."""
    fast = bench(kind, (4, 32, 19, 17))
    fast.x[0][...] += 1000
    slow = twin(fast)
    fast.forward()
    slow.forward()
    scale = np.abs(fast.w["weight"]).max()
    rounding = 1001 * scale * 2.0**-24
    np.testing.assert_allclose(fast.y, slow.y, atol=2 * rounding, rtol=0)
    np.testing.assert_allclose(fast.statistics["mean"], slow.statistics["mean"], rtol=2.0**-23)
    np.testing.assert_allclose(fast.statistics["variance"], slow.statistics["variance"], rtol=1e-6)
    slow.y[...] = fast.y  # rounding puts a number above 0 or below: a gradient goes through, or does not
    fast.backward()
    slow.backward()
    off = 1001 * 2.0**-24
    dz = np.abs(fast.dy)
    np.testing.assert_allclose(fast.dw["weight"], slow.dw["weight"], atol=2 * off * dz.sum(axis=(0, 2, 3)).max())
    np.testing.assert_allclose(fast.dx[0], slow.dx[0], atol=2 * off * scale * dz.max())


def check_statistics(fast: Bench, mean: float) -> None:
    slow = twin(fast)
    fast.forward()
    slow.forward()
    np.testing.assert_allclose(fast.statistics["variance"], slow.statistics["variance"], rtol=1e-6)
    np.testing.assert_allclose(fast.statistics["mean"], slow.statistics["mean"], rtol=mean)


def test_the_variance_where_a_mean_rounds_by_a_part_of_the_deviation():
    """Of mean 4e6 it does by up to 1/8, deviations being exact."""
    fast = bench("plain", (4, 32, 19, 17))
    fast.x[0][...] += 4e6
    check_statistics(fast, 2.0**-23)


def test_the_variance_of_levels_far_apart():
    """The first lines say nothing about the rest: deviations are from the mean of all before, not from the first."""
    fast = bench("plain", (3, 16, 20, 20))
    fast.x[0][1:] += 4000
    fast.x[0][0, :, 0] -= 30
    check_statistics(fast, 1e-6)


def test_a_relus_gradient_goes_where_its_output_is():
    """Of a third of the numbers, which are the mean of the others, what is left is rounding: above 0 or below. With
    gradients of 1 that of the bias counts them."""
    fast = bench("relu", (2, 64, 12, 12))
    x = fast.x[0]
    x[...] += 0.3
    x[:, :, ::3] = np.delete(x, np.s_[::3], axis=2).mean(axis=(0, 2, 3), keepdims=True)
    fast.w["bias"][...] = 0
    fast.dy[...] = 1
    y = fast.forward()
    fast.y[...] = np.nan
    fast.backward()
    through = (y > 0).sum(axis=(0, 2, 3))
    np.testing.assert_array_equal(fast.dw["bias"], through)
    assert len(set(through)) > 8


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_number_stays_in_its_channel(kind, value):
    whole, broken = bench(kind, (2, 32, 7, 9)), bench(kind, (2, 32, 7, 9))
    broken.x[0][1, 5, 3, 3] = value
    for each in (whole, broken):
        each.forward()
        each.backward()
    other = [channel for channel in range(32) if channel != 5]
    assert np.isnan(broken.y[:, 5]).all()
    for mine, its in ((broken.y, whole.y), (broken.dx[0], whole.dx[0])):
        np.testing.assert_array_equal(mine[:, other], its[:, other])


def test_a_sum_that_is_not_a_number_stays():
    fast = bench("sum", (2, 16, 5, 5))
    fast.x[1][0, 3, 2, 2] = np.nan
    y = fast.forward()
    assert np.argwhere(np.isnan(y)).tolist() == [[0, 3, 2, 2]]
    fast.backward()
    assert fast.dx[1][0, 3, 2, 2] == 0


def test_by_hand():
    """1, 3 and 5, 7 of weight 2, bias 1: deviation 1 of means 2 and 6; the running variance is 2, of one of two."""
    op = ops.BatchNorm(0.0, 1.0)
    fast = Bench(Case(op, ((2, 16, 1, 1),)), KERNEL, "float32", 0, True, (TAG,))
    for array, numbers in ((fast.x[0], ([1, 5] * 8, [3, 7] * 8)), (fast.dy, ([3] * 16, [5] * 16))):
        array[:, :, 0, 0] = numbers
    fast.w["weight"][...], fast.w["bias"][...] = 2, 1
    np.testing.assert_array_equal(fast.forward()[:, :, 0, 0], [[-1] * 16, [3] * 16])
    np.testing.assert_array_equal(fast.statistics["mean"], [2, 6] * 8)
    np.testing.assert_array_equal(fast.statistics["variance"], [2] * 16)
    fast.backward()
    np.testing.assert_array_equal(fast.dw["weight"], [2] * 16)
    np.testing.assert_array_equal(fast.dw["bias"], [8] * 16)
    dx = np.array(fast.dx[0])
    np.testing.assert_array_equal(dx, 0)  # of two numbers the normalised ones are always -1 and 1


def test_it_is_for_training_in_whole_blocks():
    def shapes(tag: str, c: int, training: bool = True) -> Shapes:
        shape = (2, c, 3, 3)
        return Shapes((shape,), shape, training, (0,), as_given(NORM, Shapes((shape,), shape, training), (tag,)))

    assert batch_norm.fits(shapes(TAG, 32))
    others = [shapes(TAG, 24), shapes(TAG, 32, False), shapes("abcd", 32), shapes("acdb", 32), shapes("aBcd8b", 32)]
    assert not any(batch_norm.fits(each) for each in others)


def test_one_value_a_channel_cannot_be_trained_on():
    shape = (1, 16, 1, 1)
    told = "training needs more than one value a channel, the variance of one is 0: use a larger batch"
    with refuses(told, ShapeError):
        batch_norm.buffers(NORM, Shapes((shape,), shape, True, (0,)))
