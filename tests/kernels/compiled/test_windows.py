"""What numba computes where oneDNN has nothing, on all shapes: means over rectangles, and responses to channels."""

import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.kernels.compiled import means, norms
from tests.kernels.against import compare
from tests.kernels.shapes import RANDOM, asked

KERNELS = {
    ops.AdaptiveAvgPool2d: means.WINDOWS,
    ops.AvgPool2d: means.WINDOWS,
    ops.LocalResponseNorm: norms.RESPONSES,
}


@pytest.mark.parametrize("op", KERNELS, ids=lambda op: op.kind)
@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_it_is_numpys(op: type, data: st.DataObject, seed):
    case, wanted = data.draw(asked(RANDOM[op]))
    compare(KERNELS[op], case, seed, wanted)
