"""A batch gathered out of a data set on the device: rows by the numbers that its counters hold."""

import numpy as np
import pytest

from mpibow.cuda.kernels.layout import gather
from mpibow.data.slots import fill_counter
from mpibow.graph import Array
from tests.cuda.kernels.host import needs_compiler, prepared, run_all

pytestmark = needs_compiler
prepare = prepared("gather.cu")


def gathered(table: Array, labels: Array, samples, backwards: bool = False) -> tuple[Array, Array]:
    counters = np.zeros((len(samples), 4), np.uint32)
    fill_counter(counters, 7, 3, np.asarray(samples))
    images = np.full((len(samples), table.shape[1]), 99, np.uint8)
    label = np.full(len(samples), 99, np.int32)
    run_all(gather(table, labels, counters, images, label), backwards)
    return images, label


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 784, 3072, 3 * 40 * 41, 16 * 257])
def test_rows_of_any_size(size, backwards):
    table = np.random.default_rng(size).integers(0, 256, (9, size), dtype=np.uint8)
    labels = np.arange(9, dtype=np.int32) * 5
    samples = [8, 0, 3, 3, 7]
    images, label = gathered(table, labels, samples, backwards)
    np.testing.assert_array_equal(images, table[samples])
    assert label.tolist() == [40, 0, 15, 15, 35]


def test_rows_alone():
    table, counters, rows = np.array([[1], [2], [4]], np.uint8), np.zeros((2, 4), np.uint32), np.zeros((2, 1), np.uint8)
    fill_counter(counters, 7, 3, np.array([2, 1]))
    run_all(gather(table, None, counters, rows, None))
    assert rows.tolist() == [[4], [2]]


def test_a_number_that_is_none_of_the_sets_reads_its_last_row():
    """Whatever lies in its higher word: 2^32 is not 0, and the largest is not -1."""
    table, labels = np.array([[1], [2], [4]], np.uint8), np.array([10, 20, 40], np.int32)
    counters = np.array([[0, 0, 3, 0], [0, 0, 0, 1], [0, 0, 0xFFFFFFFF, 0xFFFFFFFF], [0, 0, 1, 0]], np.uint32)
    images, label = np.zeros((4, 1), np.uint8), np.zeros(4, np.int32)
    run_all(gather(table, labels, counters, images, label))
    assert (images.ravel().tolist(), label.tolist()) == ([4, 4, 4, 2], [40, 40, 40, 20])


@pytest.mark.parametrize(
    ("size", "kernel", "blocks"), [(3072, "gather<Pack<float, 4>>", 1), (785, "gather<unsigned char>", 4)]
)
def test_images_of_whole_packs_are_copied_by_16_bytes(size, kernel, blocks):
    table, labels = np.zeros((2, size), np.uint8), np.zeros(2, np.int32)
    launch = gather(table, labels, np.zeros((5, 4), np.uint32), np.zeros((5, size), np.uint8), np.zeros(5, np.int32))
    assert (launch.kernel, launch.grid) == (kernel, (blocks, 5, 1))
