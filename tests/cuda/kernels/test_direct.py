"""Launches that no operator makes by itself, and other types."""

import ml_dtypes
import numpy as np
import pytest

from mpibow.cuda.kernels import elementwise
from tests.cuda.kernels.host import needs_compiler, prepared, run_all

pytestmark = needs_compiler
prepare = prepared("elementwise.cu")

DTYPES = ["float32", "float16", "bfloat16"]
NARROW = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("dtype", list(NARROW))
def test_every_narrow_number_becomes_the_float32_that_it_is(dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(NARROW[dtype])
    y = np.zeros(x.size, np.float32)
    run_all(elementwise.cast(x, y))
    np.testing.assert_array_equal(y, x.astype(np.float32))


@pytest.mark.parametrize("dtype", list(NARROW))
def test_float32_is_rounded_to_the_nearest_and_to_even_of_two(dtype):
    exact = np.arange(1 << 16, dtype=np.uint16).view(NARROW[dtype]).astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    halfway = ((exact[1:].astype(np.float64) + exact[:-1]) / 2).astype(np.float32)
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 14, np.uint32).view(np.float32)
    ends = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    x = np.concatenate([halfway, np.nextafter(halfway, np.float32(np.inf)), bits, ends])
    y = np.zeros(x.size, NARROW[dtype])
    run_all(elementwise.cast(x, y))
    with np.errstate(over="ignore"):
        expected = x.astype(NARROW[dtype])
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_a_cast_scales(source, target):
    x, y = np.arange(-9, 10).astype(source), np.zeros(19, target)
    run_all(elementwise.cast(x, y))
    assert y.tolist() == list(range(-9, 10))
    run_all(elementwise.cast(x, y, np.full(1, 0.25, np.float32)))
    assert y.tolist() == [i / 4 for i in range(-9, 10)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill(dtype):
    y = np.zeros(21, dtype)
    run_all(elementwise.fill(y, 0.5))
    assert y.tolist() == [0.5] * 21
    run_all(elementwise.fill(y, 0.5, np.full(1, 64, np.float32)))
    assert y.tolist() == [32.0] * 21
