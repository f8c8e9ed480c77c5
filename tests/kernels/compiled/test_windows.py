"""What numba computes where oneDNN has nothing: means over rectangles, and responses to an even number of channels."""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph.graph import Array
from mpibow.graph.kernel import Kernel
from mpibow.kernels.numpy import OPERATORS as NUMPY
from tests.kernels.cases import Bench, Case
from tests.kernels.shapes import pools

pytest.importorskip("numba", reason="numba is not installed: pip install 'mpibow[cpu]'")
from mpibow.kernels.compiled import local_response, means

MEANS = Kernel(means.forward, means.backward)
RESPONSES = Kernel(local_response.forward, local_response.backward, local_response.buffers)
IMAGES = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 12), st.integers(1, 12))


def check(kernel: Kernel, case: Case, length: float, least: float) -> None:
    """Against NumPy in float64, to 1e-6 sqrt(length of the longest sum) of the largest number, or of `least`.

    `least` is of terms that cancel: what they are rounded by is in proportion to them.
    """

    def close(got: Array, expected: Array) -> None:
        scale = max(float(np.abs(expected).max()), least)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * sqrt(length) * scale)

    for training in (False, True):
        mine = Bench(case, kernel, "float32", training=training)
        theirs = Bench(case, NUMPY[type(case.op)], "float64", training=training)
        theirs.x[0][...], theirs.dy[...] = mine.x[0], mine.dy
        close(mine.forward(), theirs.forward())
    mine.hide_what_backward_may_not_read()
    mine.backward()
    theirs.backward()
    assert mine.dx[0] is not None
    assert theirs.dx[0] is not None
    close(mine.dx[0], theirs.dx[0])


@given(IMAGES, st.integers(1, 7), st.integers(1, 7))
@settings(deadline=None, max_examples=60)
def test_adaptive_means(shape: tuple[int, ...], rows: int, columns: int) -> None:
    """An element is in up to as many windows as there are, where they are more than the pixels."""
    reach = (ceil(shape[2] / rows) + 1) * (ceil(shape[3] / columns) + 1)
    back = (ceil(rows / shape[2]) + 1) * (ceil(columns / shape[3]) + 1)
    check(MEANS, Case(ops.AdaptiveAvgPool2d((rows, columns)), (shape,)), max(reach, back), 5.0)


@given(pools().filter(lambda found: isinstance(found[0], ops.AvgPool2d)))
@settings(deadline=None, max_examples=60)
def test_means_of_windows(found: tuple[Any, tuple[int, ...]]) -> None:
    op, shape = found
    check(MEANS, Case(op, (shape,)), op.kernel[0] * op.kernel[1], 5.0)


@given(
    st.one_of(IMAGES, st.tuples(*[st.integers(1, 20)] * 2), st.tuples(*[st.integers(1, 9)] * 3)),
    st.integers(1, 12),
    st.sampled_from([(0.5, 0.75, 2.0), (1e-4, 0.75, 1.0), (2.0, 0.5, 1.0), (1.0, 0.0, 1.0)]),
)
@settings(deadline=None, max_examples=60)
def test_responses(shape: tuple[int, ...], size: int, numbers: tuple[float, float, float]) -> None:
    check(RESPONSES, Case(ops.LocalResponseNorm(size, *numbers), (shape,)), size, 5.0)
