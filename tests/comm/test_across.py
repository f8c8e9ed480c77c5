"""What nodes send each other, rounded to bfloat16."""

import numpy as np
import pytest

from mpibow.kernels.compiled.sums import narrow, widen


def test_float32_is_rounded_to_the_nearest_and_to_even_of_two():
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    bits[:6] = 0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x80000001, 0x7FFFFFFF, 0xFF800000
    array = bits.view(np.float32)
    expected, halves, again = torch.tensor(array).bfloat16().float().numpy(), np.zeros(array.size, np.uint16), array * 0
    narrow(halves, array)
    widen(again, halves)
    np.testing.assert_array_equal(again, expected)
