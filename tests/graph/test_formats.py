"""Physical layouts: tags against arrays laid out by hand, and there and back for random ones."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.graph.formats import canonical, pack, physical, unpack


def test_channels_in_blocks_by_hand():
    image = np.arange(2 * 3 * 1 * 2, dtype=np.float32).reshape(2, 3, 1, 2)
    blocked = pack(image, "aBcd2b")
    assert blocked.shape == physical("aBcd2b", image.shape) == (2, 2, 1, 2, 2)
    assert blocked[0, 0, 0].tolist() == [[0.0, 2.0], [1.0, 3.0]]  # a pixel's first two channels side by side
    assert blocked[0, 1, 0].tolist() == [[4.0, 0.0], [5.0, 0.0]]  # the third, and padding
    assert blocked[1, 1, 0].tolist() == [[10.0, 0.0], [11.0, 0.0]]


def test_channels_last_by_hand():
    image = np.arange(6).reshape(1, 2, 1, 3)
    assert pack(image, "acdb").ravel().tolist() == [0, 3, 1, 4, 2, 5]


def test_two_axes_in_blocks_by_hand():
    matrix = np.arange(16).reshape(4, 4)
    assert pack(matrix, "AB2b2a").ravel().tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]


def test_an_axis_cut_twice_by_hand():
    vector = np.arange(16).reshape(1, 16)
    # 16 = 2 (outer) x 2 x 4; blocks from the outside: 2 of b, 1 of a, 4 of b
    assert pack(vector, "AB2b1a4b").ravel().tolist() == list(range(16))
    assert physical("AB2b1a4b", (3, 17)) == (3, 3, 2, 1, 4)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 3, 4)])
def test_canonical_is_the_array_itself(shape):
    array = np.random.default_rng(0).standard_normal(shape)
    assert physical(canonical(shape), shape) == shape
    np.testing.assert_array_equal(pack(array, canonical(shape)), array)


TAGS = ["abcd", "acdb", "bcda", "aBcd16b", "aBcd8b", "Acdb16a", "ABcd16b16a", "ABcd16a16b", "ABcd4b16a4b", "BAcd16a16b"]


@given(
    st.sampled_from(TAGS),
    st.tuples(st.integers(1, 35), st.integers(1, 35), st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from(["float32", "float64"]),
)
def test_there_and_back(tag, shape, dtype):
    array = np.random.default_rng(1).standard_normal(shape).astype(dtype) + 3
    packed = pack(array, tag)
    assert packed.shape == physical(tag, shape)
    assert packed.dtype == dtype
    np.testing.assert_array_equal(unpack(packed, tag, shape), array)
    assert np.count_nonzero(packed) == array.size  # the rest, padding, is zero
