"""Kernels allocate nothing while they run: every case, at a size where any array of theirs would stand out."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from mpibow.kernels.numpy import OPERATORS
from tests.kernels.cases import Bench, Case, name
from tests.kernels.operators import LARGE

LIMIT = 3072  # bytes: NumPy's iterators and small objects


def peak_of(run: Any) -> int:
    """Bytes allocated at most while `run` runs, the second time."""
    size = np.getbufsize()
    np.setbufsize(16)  # NumPy converts between dtypes through buffers of fixed size, 32 KB each: make them small
    try:
        run()
        tracemalloc.start()
        run()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        np.setbufsize(size)


@pytest.mark.parametrize("case", LARGE, ids=name)
def test_nothing_is_allocated(case: Case) -> None:
    kernel = OPERATORS[type(case.op)]
    bench = Bench(case, kernel, "float32")
    assert peak_of(kernel.forward(bench.call(backward=False))) < LIMIT
    if kernel.backward is not None:
        assert peak_of(kernel.backward(bench.call(backward=True))) < LIMIT


def test_every_kernel_is_here() -> None:
    assert {type(case.op) for case in LARGE} >= set(OPERATORS)
