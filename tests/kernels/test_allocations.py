"""Kernels allocate nothing while they run: every case, at a size where any array of theirs would stand out."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from mpibow import ops
from mpibow.graph.graph import FLOAT
from mpibow.graph.steps import Sum
from mpibow.kernels.numpy import OPERATORS
from tests.kernels.cases import INITIAL, Bench, Case, name

N = 4096  # the smallest array of a case, (N,) bool, is 4 KB
LIMIT = 3072  # bytes: NumPy's iterators and small objects
IMAGE = (N, 6, 5, 5)
LARGE = [
    Case(ops.Dense(5, True, INITIAL), ((N, 7),)),
    Case(ops.Conv2d(4, (3, 3), (1, 1), (1, 1), True, INITIAL, 2, (2, 1)), (IMAGE,)),
    Case(ops.MaxPool2d((3, 3), (2, 2), (1, 1), True), (IMAGE,)),
    Case(ops.AvgPool2d((3, 3), (2, 2), (1, 1), True, False), (IMAGE,)),
    Case(ops.AdaptiveAvgPool2d((3, 2)), (IMAGE,)),
    Case(ops.GlobalAvgPool2d(), (IMAGE,)),
    Case(ops.BatchNorm(1e-5, 0.1), (IMAGE,)),
    Case(ops.PadChannels(9), (IMAGE,)),
    Case(ops.Relu(), ((N, 5),)),
    Case(ops.LeakyRelu(0.1), ((N, 5),)),
    Case(ops.ClippedRelu(6.0), ((N, 5),)),
    Case(ops.Sigmoid(), ((N, 5),)),
    Case(ops.Tanh(), ((N, 5),)),
    Case(ops.Gelu(False), ((N, 9),)),
    Case(ops.Gelu(True), ((N, 9),), id="tanh"),
    Case(ops.Dropout(0.5), ((N, 9), (N, 4)), (FLOAT, "uint32"), 9),
    Case(ops.Augment(2, (5, 5), True), (IMAGE, (N, 4)), ("uint8", "uint32"), 200),
    Case(ops.CentreCrop((3, 4)), (IMAGE,), ("uint8",), 200),
    Case(ops.Cutout(3), (IMAGE, (N, 4)), (FLOAT, "uint32"), 200),
    Case(ops.Jitter(0.4, 0.4, 0.4, 255.0), ((N, 3, 4, 4), (N, 4)), ("uint8", "uint32"), 200),
    Case(ops.MixShares(0.2), ((N, 4),), ("uint32",), 1 << 32),
    Case(ops.Mix(), (IMAGE, (N,))),
    Case(ops.OneHot(4), ((N,),), ("int32",)),
    Case(ops.Normalise((1.0,) * 6, (2.0,) * 6), (IMAGE,), ("uint8",), 200),
    Case(ops.Normalise((1.0,) * 150, (2.0,) * 6), (IMAGE,), ("uint8",), 200, id="a mean image"),
    Case(ops.Softmax(1), (IMAGE,)),
    Case(ops.SoftmaxCrossEntropy(), ((N, 4), (N,)), (FLOAT, "int32")),
    Case(ops.SoftmaxCrossEntropy(0.1, 2), ((N, 4), (N,)), (FLOAT, "int32"), id="smoothing and ignore"),
    Case(ops.SoftCrossEntropy(0.1), ((N, 4), (N, 4))),
    Case(ops.Accuracy(), ((N, 4), (N,)), (FLOAT, "int32")),
    Case(ops.Accuracy(3), ((N, 4), (N,)), (FLOAT, "int32"), id="top 3"),
    Case(ops.Add((1.0, 0.5, 1.0)), ((N, 5),) * 3),
    Case(ops.Multiply(3), ((N, 5),) * 3),
    Case(ops.Maximum(3), ((N, 5),) * 3),
    Case(ops.Concat(2, 1), ((N, 5), (N, 2))),
    Case(ops.LocalResponseNorm(5, 1e-4, 0.75, 1.0), (IMAGE,)),
    Case(ops.LayerNorm(2, 1e-5), ((N, 3, 4),)),
    Case(ops.MatrixFactorisation(N, 2 * N, 3, INITIAL), ((N,),) * 3, ("int32", "int32", FLOAT), N),
    Case(Sum(), ((N, 5),) * 3),
]


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
