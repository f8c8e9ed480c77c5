"""Squares that are cut out and colours that are shifted: by hand, and as often as they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpibow import ops
from mpibow.graph.graph import FLOAT, Array, Graph
from mpibow.kernels.numpy import OPERATORS
from mpibow.ops.colour import factor
from mpibow.ops.philox import stream
from tests.kernels.cases import Bench, Case
from tests.ops.test_philox import plain as philox


def counters(samples: list[int], seed: int = 1, epoch: int = 0) -> Array:
    return np.array([[seed, epoch, sample & 0xFFFFFFFF, sample >> 32] for sample in samples], np.uint32)


def ran(op: Any, images: Array, dtype: str = FLOAT, **counter: int) -> Array:
    """Images as samples 0, 1, ... of a data set."""
    counter_array = counters(list(range(len(images))), **counter)
    case = Case(op, (images.shape, counter_array.shape), (dtype, "uint32"))
    bench = Bench(case, OPERATORS[type(op)], "float64")
    bench.x[0][...], bench.x[1][...] = images, counter_array
    return bench.forward()


def draws(count: int, word: int) -> list[float]:
    """In [0, 1), of each sample."""
    return [philox((0, sample, 0, 0), (1, stream("node")))[word] / 2**32 for sample in range(count)]


def test_a_factor_is_even_between_its_bounds() -> None:
    assert [factor(0.4, word) for word in (0, 1 << 31, 2**32 - 1)] == pytest.approx([0.6, 1.0, 1.4])
    assert [factor(3.0, word) for word in (0, 1 << 31, 2**32 - 1)] == pytest.approx([0.0, 2.0, 4.0])
    assert {factor(0.0, word) for word in (0, 1, 12345678, 2**32 - 1)} == {1.0}


def test_brightness_multiplies_and_stays_in_range() -> None:
    images = np.full((50, 1, 1, 3), [0, 100, 250])
    factors = np.array([0.5 + draw for draw in draws(50, 0)])[:, None]
    y = ran(ops.Jitter(0.5, limit=255.0), images, "uint8").reshape(50, 3)
    np.testing.assert_allclose(y, np.minimum(factors * [0, 100, 250], 255))
    assert (y[:, 2] == 255).sum() == (factors > 1.02).sum() > 10
    wide = ran(ops.Jitter(0.5), images).reshape(50, 3)  # floats have no range
    np.testing.assert_allclose(wide, factors * [0, 100, 250])


def test_contrast_pulls_to_the_mean_grey() -> None:
    images = np.broadcast_to(np.array([[40, 60], [80, 100], [0, 0]]).reshape(3, 1, 2), (40, 3, 1, 2))
    mean = 0.299 * 50 + 0.587 * 90
    for draw, y in zip(draws(40, 1), ran(ops.Jitter(0.0, 1.0, limit=255.0), images, "uint8"), strict=True):
        expected = np.clip(2 * draw * images[0] + (1 - 2 * draw) * mean, 0, 255)
        np.testing.assert_allclose(y, expected)


def test_the_grey_of_other_channels_is_their_mean() -> None:
    images = np.broadcast_to(np.array([1.0, 2, 3, 6]).reshape(4, 1, 1), (9, 4, 1, 1))
    for draw, y in zip(draws(9, 1), ran(ops.Jitter(0.0, 0.4), images), strict=True):
        f = 0.6 + 0.8 * draw
        np.testing.assert_allclose(y.ravel(), [f * x + (1 - f) * 3 for x in (1, 2, 3, 6)])


def test_saturation_pulls_to_the_grey_of_the_pixel() -> None:
    images = np.broadcast_to(np.array([[200, 10], [100, 10], [50, 10]]).reshape(3, 1, 2), (20, 3, 1, 2))
    grey = 0.299 * 200 + 0.587 * 100 + 0.114 * 50
    for draw, y in zip(draws(20, 2), ran(ops.Jitter(0.0, 0.0, 0.2, 255.0), images, "uint8"), strict=True):
        f = 0.8 + 0.4 * draw
        np.testing.assert_allclose(y[:, 0, 0], [f * x + (1 - f) * grey for x in (200, 100, 50)])
        np.testing.assert_allclose(y[:, 0, 1], 10)  # grey stays what it is


def test_brightness_comes_first_and_saturation_last() -> None:
    image = np.array([220, 90, 30]).reshape(1, 3, 1, 1)
    a, b, c = (2 * draws(1, word)[0] for word in range(3))
    bright = np.clip(a * image.ravel(), 0, 255)
    grey = bright @ [0.299, 0.587, 0.114]
    tone = np.clip(b * bright + (1 - b) * grey, 0, 255)
    expected = np.clip(c * tone + (1 - c) * (tone @ [0.299, 0.587, 0.114]), 0, 255)
    np.testing.assert_allclose(ran(ops.Jitter(1.0, 1.0, 1.0, 255.0), image, "uint8").ravel(), expected)


def test_a_square_lies_where_its_centre_is_drawn() -> None:
    y = ran(ops.Cutout(4), np.ones((60, 2, 6, 9)))
    for row, column, image in zip(draws(60, 0), draws(60, 1), y, strict=True):
        top, left = int(6 * row) - 2, int(9 * column) - 2
        expected = np.ones((6, 9))
        expected[max(top, 0) : top + 4, max(left, 0) : left + 4] = 0
        np.testing.assert_array_equal(image, [expected, expected])


def test_every_centre_is_as_likely_and_a_corner_loses_a_quarter() -> None:
    count = 16 * 300
    cut = 1 - ran(ops.Cutout(4), np.ones((count, 1, 4, 4)))[:, 0]
    sizes, times = np.unique(cut.sum(axis=(1, 2)), return_counts=True)
    # rows 0 to 1, 0 to 2, 0 to 3, 1 to 3 of the four: 2, 3, 4, 3 rows, and columns alike
    assert sizes.tolist() == [4, 6, 8, 9, 12, 16]
    for size, n in zip(sizes, times, strict=True):
        ways = {4: 1, 6: 4, 8: 2, 9: 4, 12: 4, 16: 1}[int(size)]
        assert n == pytest.approx(300 * ways, abs=4 * (300 * ways) ** 0.5)


@pytest.mark.parametrize("op", [ops.Cutout(2), ops.Jitter(0.4)], ids=lambda op: op.kind)
def test_it_depends_on_seed_and_epoch(op: Any) -> None:
    images = np.ones((30, 1, 6, 6))
    first = ran(op, images)
    np.testing.assert_array_equal(ran(op, images), first)
    for other in (ran(op, images, seed=2), ran(op, images, epoch=1), np.roll(first, 1, axis=0)):
        assert (other != first).any(axis=(1, 2, 3)).sum() > 20


@pytest.mark.parametrize(("dtype", "limit"), [("uint8", 255.0), ("float32", None), (FLOAT, None)])
def test_bytes_have_a_range_and_floats_have_none(dtype: str, limit: float | None) -> None:
    graph = Graph()
    y = ops.jitter(graph.input("image", (2, 3, 4, 4), dtype), contrast=0.4)
    assert graph.nodes[0].op == ops.Jitter(contrast=0.4, limit=limit)
    assert y.dtype == FLOAT
