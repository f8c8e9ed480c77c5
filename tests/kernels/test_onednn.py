"""oneDNN's kernels against NumPy's in float64, in the layouts that they ask for, on random shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph.formats import Reorder
from mpibow.graph.graph import Array, Op
from mpibow.graph.kernel import KernelTable, Shapes
from mpibow.kernels import numpy as reference
from mpibow.ops.fused import AddRelu, ConvNormAddRelu, ConvRelu, NormAddRelu
from tests.kernels.cases import CASES, INITIAL, Bench, Case, name
from tests.kernels.shapes import channels, convolutions, pools, sides

pytest.importorskip("numba", reason="numba is not installed: pip install 'mpibow[cpu]'")
from mpibow.kernels.onednn import library as dnn
from mpibow.kernels.onednn import operators, winograd

FOUND = dnn.find_library()
pytestmark = pytest.mark.skipif(FOUND is None, reason="no libdnnl found: pip install 'mpibow[cpu]'")

IMAGES = ("abcd", "acdb", "aBcd16b", "aBcd8b")  # layouts that an image may come in
UNIT = 1e-6  # of max |reference|, times the root of the reduction's length
# Where the bound is looser, by what factor and why.
LOOSER = {
    "batch_norm": (20, "a difference of two sums is divided by a deviation that may be small"),
    "norm+add+relu": (20, "as batch_norm"),
    "local_response_norm": (10, "a power by exponential and logarithm, and products of powers backward"),
    "softmax": (4, "exponentials of differences"),
}


@pytest.fixture(scope="module")
def table() -> KernelTable:
    assert FOUND is not None
    return operators(dnn.load(FOUND))


def close(got: Array, expected: Array, length: float, kind: str) -> None:
    bound = UNIT * LOOSER.get(kind, (1, ""))[0] * math.sqrt(max(length, 1)) * np.abs(expected).max(initial=0.0)
    worst = np.abs(got - expected).max(initial=0.0)
    assert worst <= bound, f"off by {worst:g}, bound {bound:g}"


def check(table: KernelTable, case: Case, lengths: tuple[float, float, float], given: tuple[str, ...]) -> None:
    """Forward and backward of one case; `lengths` are those of the sums in y, dx and dw."""
    op, kernel = case.op, table[type(case.op)]
    fast = Bench(case, kernel, "float32", given=given)
    inner: Op = op.conv if isinstance(op, ConvRelu) else op.norm if isinstance(op, NormAddRelu) else op
    relu = isinstance(op, ConvRelu | NormAddRelu)
    slow = Bench(Case(inner, case.shapes[:1], case.dtypes[:1]), reference.OPERATORS[type(inner)], "float64")
    slow.x = (fast.x[0].astype(np.float64),)
    slow.w = {key: array.astype(np.float64) for key, array in fast.w.items()}
    slow.statistics = {key: array.astype(np.float64) for key, array in fast.statistics.items()}
    got, expected = fast.forward(), slow.forward()
    if len(fast.x) > 1:
        expected = expected + fast.x[1]
    close(got, np.maximum(expected, 0) if relu else expected, lengths[0], op.kind)
    for key, array in slow.statistics.items():
        close(fast.statistics[key], array, lengths[0], op.kind)
    if kernel.backward is None:
        return
    fast.hide_what_backward_may_not_read()
    fast.backward()
    dz = fast.dy * (got > 0) if relu else fast.dy
    slow.dy = dz.astype(np.float64)
    slow.backward()
    assert fast.dx[0] is not None
    assert slow.dx[0] is not None
    close(fast.dx[0], slow.dx[0], lengths[1], op.kind)
    if len(fast.x) > 1:
        np.testing.assert_array_equal(fast.dx[1], dz)
    for key, array in slow.dw.items():
        close(fast.dw[key], array, lengths[2], op.kind)


@given(convolutions(), st.sampled_from(IMAGES), st.booleans())
@settings(deadline=None, max_examples=120)
def test_convolution(table: KernelTable, found: tuple[ops.Conv2d, tuple[int, ...]], tag: str, relu: bool) -> None:
    op, shape = found
    try:
        y = op.infer(shape)
    except ShapeError:
        assume(False)
    area = op.kernel[0] * op.kernel[1]
    lengths = (shape[1] // op.groups * area, op.channels // op.groups * area, y[0] * y[2] * y[3])
    check(table, Case(ConvRelu(op) if relu else op, (shape,)), lengths, (tag,))


def winograd_fits(n: int, c: int, k: int, h: int, w: int, taps: int = 3, padding: int = 1) -> bool:
    op = ops.Conv2d(k, (taps, taps), (1, 1), (padding, padding), False, INITIAL)
    return winograd.fits(op, Shapes(((n, c, h, w),), op.infer((n, c, h, w)), training=True))


@given(
    st.integers(1, 9),
    *[st.sampled_from([16, 32, 48])] * 2,
    *[st.sampled_from([8, 16, 24])] * 2,
    st.sampled_from([(3, 1), (5, 0), (5, 2)]),
    *[st.booleans()] * 3,
)
@settings(deadline=None, max_examples=120)
def test_winograd(
    table: KernelTable,
    n: int,
    c: int,
    k: int,
    high: int,
    wide: int,
    window: tuple[int, int],
    low: bool,
    bias: bool,
    relu: bool,
) -> None:
    """Whole strips and parts of them, images one group wide and several, one pair of rows high and several."""
    taps, padding = window
    high = (2 if padding < 2 else 6) if low and n > 3 else high
    h, w = high + taps - 1 - 2 * padding, wide + taps - 1 - 2 * padding
    assert winograd_fits(n, c, k, h, w, taps, padding)
    op = ops.Conv2d(k, (taps, taps), (1, 1), (padding, padding), bias, INITIAL)
    case = Case(ConvRelu(op) if relu else op, ((n, c, h, w),))
    check(table, case, (taps**2 * c, taps**2 * k, n * high * wide), ("aBcd16b",))


def test_winograd_is_for_shapes_that_it_covers_and_is_faster_on() -> None:
    assert [winograd_fits(4, c, c, side, side) for c, side in ((16, 32), (32, 16), (64, 8), (256, 8))] == [True] * 4
    assert not any(
        winograd_fits(*shape)
        for shape in ((4, 3, 16, 32, 32), (4, 16, 24, 8, 8), (4, 16, 16, 7, 8), (4, 16, 16, 8, 12), (1, 16, 16, 2, 8),
                      (4, 512, 16, 8, 8))
    )  # fmt: skip
    shapes = Shapes(((4, 16, 8, 8),), (4, 16, 8, 8), training=True)
    other = [((5, 5), (1, 1), (1, 1)), ((3, 5), (1, 1), (1, 2)), ((3, 3), (2, 2), (1, 1)), ((3, 3), (1, 1), (0, 0))]
    assert not any(winograd.fits(ops.Conv2d(16, *window, False, INITIAL), shapes) for window in other)
    assert not winograd.fits(ops.Conv2d(16, (3, 3), (1, 1), (1, 1), False, INITIAL, 2), shapes)
    assert not winograd.fits(ops.Conv2d(16, (3, 3), (1, 1), (1, 1), False, INITIAL, 1, (2, 2)), shapes)


@pytest.mark.parametrize(
    ("shape", "padding", "expected"),
    [
        ((1, 32, 64, 12, 12), 0, True),  # LeNet's second, of one image
        ((1, 32, 64, 10, 12), 0, False),  # 48 outputs
        ((4, 32, 64, 6, 12), 0, True),
        ((2, 16, 16, 6, 8), 2, True),
        ((4, 16, 16, 4, 8), 2, False),  # too low: oneDNN leaves the padding out
        ((1, 256, 16, 8, 8), 2, False),  # too few outputs for so many weights
        ((1, 16, 256, 8, 8), 2, False),
        ((2, 256, 256, 8, 8), 2, True),
        ((4, 272, 16, 8, 8), 2, False),
        ((4, 32, 64, 13, 12), 0, False),
        ((4, 32, 64, 12, 16), 0, False),
    ],
)
def test_winograd_of_5x5_needs_more_outputs(
    shape: tuple[int, int, int, int, int], padding: int, expected: bool
) -> None:
    assert winograd_fits(*shape, 5, padding) == expected


@given(st.integers(1, 20), st.integers(1, 70), st.integers(1, 70), st.booleans())
@settings(deadline=None, max_examples=60)
def test_dense(table: KernelTable, n: int, features: int, units: int, bias: bool) -> None:
    check(table, Case(ops.Dense(units, bias, INITIAL), ((n, features),)), (features, units, n), ("ab",))


@given(st.tuples(st.integers(1, 6), channels, sides, sides), st.sampled_from(IMAGES), st.sampled_from([None, 0, 1]))
@settings(deadline=None, max_examples=60)
def test_batch_norm(table: KernelTable, shape: tuple[int, ...], tag: str, fused: int | None) -> None:
    values = shape[0] * shape[2] * shape[3]
    assume(values > 3)  # the variance of two values may be next to nothing
    norm = ops.BatchNorm(1e-3, 0.1)
    op = norm if fused is None else NormAddRelu(norm, bool(fused))
    check(table, Case(op, (shape,) * (2 if fused else 1)), (values,) * 3, (tag,) * (2 if fused else 1))


@given(pools(), st.sampled_from(IMAGES))
@settings(deadline=None, max_examples=120)
def test_pooling(table: KernelTable, found: tuple[Any, tuple[int, ...]], tag: str) -> None:
    op, shape = found
    area = op.kernel[0] * op.kernel[1]
    check(table, Case(op, (shape,)), (area, area, 1), (tag,))


@pytest.mark.parametrize("tag", IMAGES)
def test_the_gradient_of_equals_goes_to_the_first(table: KernelTable, tag: str) -> None:
    op = ops.MaxPool2d((3, 2), (2, 1), (1, 1), True)
    case = Case(op, ((2, 17, 7, 6),))
    fast, slow = (
        Bench(case, table[type(op)], "float32", given=(tag,)),
        Bench(case, reference.OPERATORS[type(op)], "float64"),
    )
    levels = np.random.default_rng(4).integers(0, 3, case.shapes[0])
    for bench in (fast, slow):
        bench.x[0][...] = levels
        bench.dy[...] = np.arange(bench.dy.size).reshape(bench.dy.shape) % 7
        bench.forward()
        bench.backward()
    np.testing.assert_array_equal(fast.dx[0], slow.dx[0])


@given(st.tuples(st.integers(1, 3), channels, sides, sides), st.sampled_from(["abcd", "aBcd16b"]), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_local_response(table: KernelTable, shape: tuple[int, ...], tag: str, half: int) -> None:
    size = 2 * half + 1
    check(table, Case(ops.LocalResponseNorm(size, 0.5, 0.75, 2.0), (shape,)), (size, size, 1), (tag,))


@given(st.tuples(st.integers(1, 6), st.integers(1, 40), st.integers(1, 4)), st.integers(1, 2))
@settings(deadline=None, max_examples=40)
def test_softmax(table: KernelTable, shape: tuple[int, ...], axis: int) -> None:
    check(table, Case(ops.Softmax(axis), (shape,)), (shape[axis], shape[axis], 1), ("abc",))


@given(st.tuples(st.integers(1, 3), channels, sides, sides), st.sampled_from(IMAGES), st.sampled_from(IMAGES))
@settings(deadline=None, max_examples=40)
def test_reorder(table: KernelTable, shape: tuple[int, ...], source: str, target: str) -> None:
    bench = Bench(Case(Reorder(source, target), (shape,)), table[Reorder], "float32", given=(source,))
    np.testing.assert_array_equal(bench.forward(), bench.x[0])
    bench.backward()
    np.testing.assert_array_equal(bench.dx[0], bench.dy)


WHOLE = [case for case in CASES if not case.op.is_view(training=True)]


@pytest.mark.parametrize("case", WHOLE, ids=name)
def test_every_case_of_the_reference(table: KernelTable, case: Case) -> None:
    """Every entry of the table, NumPy's own among them, on the cases that the reference is tested on."""
    kernel, plain = table[type(case.op)], reference.OPERATORS[type(case.op)]
    fast, slow = Bench(case, kernel, "float32"), Bench(case, plain, "float64")
    slow.x = tuple(a.astype(b.dtype) for a, b in zip(fast.x, slow.x, strict=True))
    for key in slow.w:
        slow.w[key][...] = fast.w[key]
    for key in slow.statistics:
        slow.statistics[key][...] = fast.statistics[key]
    slow.dy[...] = fast.dy
    np.testing.assert_allclose(fast.forward(), slow.forward(), rtol=2e-5, atol=2e-5)
    if kernel.backward is not None:
        fast.hide_what_backward_may_not_read()
        fast.backward()
        slow.backward()
        for a, b in zip([*fast.dx, *fast.dw.values()], [*slow.dx, *slow.dw.values()], strict=True):
            if a is not None and b is not None:
                np.testing.assert_allclose(a, b, rtol=5e-5, atol=5e-5 * np.abs(b).max())


def test_the_table_is_whole(table: KernelTable) -> None:
    assert set(table) == set(reference.OPERATORS) | {Reorder, ConvRelu, ConvNormAddRelu, NormAddRelu, AddRelu}
