"""What numba computes where oneDNN has nothing, on all shapes: means over rectangles, and responses to channels."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph.kernel import Kernel
from tests.kernels.against import compare
from tests.kernels.shapes import RANDOM, asked

pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
from mpibow.kernels.compiled import local_response, means

KERNELS = {
    ops.AdaptiveAvgPool2d: Kernel(means.forward, means.backward),
    ops.AvgPool2d: Kernel(means.forward, means.backward),
    ops.LocalResponseNorm: Kernel(local_response.forward, local_response.backward, local_response.buffers),
}


@pytest.mark.parametrize("op", KERNELS, ids=lambda op: op.kind)
@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_it_is_numpys(op: type, data: st.DataObject, seed: int) -> None:
    case, wanted = data.draw(asked(RANDOM[op]))
    compare(KERNELS[op], case, seed, wanted)
