"""oneDNN's kernels against NumPy's in float64, in the layouts that they ask for, on random shapes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.graph import Shapes
from mpibow.graph.formats import Reorder
from mpibow.kernels.compiled.table import OPERATORS as COMPILED
from mpibow.kernels.numpy import OPERATORS as NUMPY
from mpibow.kernels.onednn import winograd
from mpibow.ops.fused import (
    AddRelu,
    ConvNormAddRelu,
    ConvRelu,
    ExpandAdd,
    ExpandMultiply,
    HeadsAttention,
    NormAddRelu,
    TurnedMatmul,
)
from tests.kernels.against import compare
from tests.kernels.cases import INITIAL, Alone, Bench, Case, name
from tests.kernels.draw import LAYOUTS, images
from tests.kernels.onednn import LIBRARY, TABLE, needs_onednn, operators
from tests.kernels.operators import CASES
from tests.kernels.shapes import RANDOM, asked, given_in

pytestmark = needs_onednn

# What is its own, nearly all by the library; the rest of the table is of the compiled set, and tested with that.
OWN = (
    ConvNormAddRelu, ConvRelu, NormAddRelu, Reorder, ops.AvgPool2d, ops.BatchNorm, ops.Conv2d,
    ops.ConvTranspose2d, ops.Dense, ops.LocalResponseNorm, ops.MaxPool2d,
)  # fmt: skip
TAGS = st.sampled_from(LAYOUTS)


@pytest.mark.parametrize("op", [op for op in OWN if op is not Reorder], ids=lambda op: op.kind)
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers(0, 1000), tag=TAGS)
def test_it_is_numpys(op: type, data: st.DataObject, seed, tag):
    case, wanted = data.draw(asked(RANDOM[op]))
    compare(TABLE[op], case, seed, wanted, tag)


@pytest.mark.parametrize("wanted", [(), (0,)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 3)])
@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize("groups", [4, 16, 32, 64])
def test_a_channel_a_group(groups, each, kernel, wanted):
    """The library's layouts of such weights have axes of one element, which it names in places of their own."""
    op = ops.Conv2d(groups * each, kernel, (1, 1), (kernel[0] // 2, kernel[1] // 2), True, INITIAL, groups)
    compare(TABLE[ops.Conv2d], Case(op, ((2, groups, 6, 6),)), 0, wanted)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_what_is_added_comes_in_the_layout_of_the_sum(bias, relu):
    """Of windows that are mostly padding: for these the library likes another layout once there is a sum."""
    conv = ops.Conv2d(4, (2, 4), (1, 3), (1, 3), bias, INITIAL)
    op = Alone(conv, ops.BatchNorm(1e-3, 0.1), added=True, relu=relu)
    compare(TABLE[ConvNormAddRelu], Case(op, ((1, 4, 3, 3), (1, 4, 4, 2))))


@pytest.mark.parametrize(("units", "rows", "inputs"), [(20, 4, 24), (128, 3, 40), (64, 8, 100)])
def test_few_rows_of_a_dense_layer(units, rows, inputs):
    """Whole blocks, and those of AVX2 that the library pads."""
    compare(TABLE[ops.Dense], Case(ops.Dense(units, True, INITIAL), ((rows, inputs),)), 0, (0,))


def test_every_kernel_is_tried():
    fused = {ConvRelu, ConvNormAddRelu, NormAddRelu, AddRelu, ExpandAdd, ExpandMultiply, HeadsAttention, TurnedMatmul}
    assert set(TABLE) == set(NUMPY) | {Reorder} | fused
    others = {**NUMPY, **COMPILED}
    assert {op for op, kernel in TABLE.items() if kernel is not others.get(op) and not kernel.reference} == set(OWN)


def winograd_fits(n: int, c: int, k: int, h: int, w: int, taps: int = 3, padding: int = 1) -> bool:
    op = ops.Conv2d(k, (taps, taps), (1, 1), (padding, padding), False, INITIAL)
    return winograd.fits(op, Shapes(((n, c, h, w),), op.infer((n, c, h, w)), training=True))


@given(
    st.integers(1, 9),
    *[st.sampled_from([16, 32, 48])] * 2,
    st.sampled_from([8, 9, 12, 16, 24]),
    st.sampled_from([8, 14, 16, 24]),
    st.sampled_from([(3, 1), (5, 0), (5, 2)]),
    *[st.booleans()] * 3,
    st.sampled_from([(), (0,)]),
    st.integers(0, 1000),
)
@settings(max_examples=20)
def test_winograd(
    n,
    c,
    k,
    high,
    wide,
    window,
    low,
    bias,
    relu,
    wanted,
    seed,
):
    """Whole strips and parts of them; images of a group and of several, which extend beyond it, one pair of rows high
    and several."""
    taps, padding = window
    high = (2 if padding < 2 else 6) if low and n > 3 else high
    high, wide = (high, wide) if taps == 3 else (high + high % 2, wide // 8 * 8)
    h, w = high + taps - 1 - 2 * padding, wide + taps - 1 - 2 * padding
    assert winograd_fits(n, c, k, h, w, taps, padding)
    op = ops.Conv2d(k, (taps, taps), (1, 1), (padding, padding), bias, INITIAL)
    case = Case(ConvRelu(op) if relu else op, ((n, c, h, w),))
    compare(winograd.KERNEL, case, seed, wanted, "aBcd16b")


@pytest.mark.parametrize(("c", "k"), [(512, 256), (256, 512)])
def test_winograd_of_many_channels(c, k):
    assert winograd_fits(4, c, k, 8, 8)
    op = ops.Conv2d(k, (3, 3), (1, 1), (1, 1), True, INITIAL)
    compare(winograd.KERNEL, Case(op, ((4, c, 8, 8),)), 0, (0,), "aBcd16b")


def test_winograd_is_for_shapes_that_it_covers_and_is_faster_on():
    assert [winograd_fits(4, c, c, side, side) for c, side in ((16, 32), (32, 16), (64, 8), (256, 8))] == [True] * 4
    assert all(winograd_fits(*shape) for shape in ((4, 512, 512, 8, 8), (1, 512, 256, 16, 16), (4, 256, 512, 8, 8)))
    assert not any(
        winograd_fits(*shape)
        for shape in ((4, 3, 16, 32, 32), (4, 16, 24, 8, 8), (4, 16, 16, 5, 5), (4, 16, 16, 4, 4), (1, 16, 16, 2, 8),
                      (4, 512, 16, 8, 8), (2, 512, 512, 8, 8), (4, 272, 240, 8, 8), (4, 528, 512, 8, 8))
    )  # fmt: skip
    shapes = Shapes(((4, 16, 8, 8),), (4, 16, 8, 8), training=True)
    other = [((5, 5), (1, 1), (1, 1)), ((3, 5), (1, 1), (1, 2)), ((3, 3), (2, 2), (1, 1)), ((3, 3), (1, 1), (0, 0))]
    assert not any(winograd.fits(ops.Conv2d(16, *window, False, INITIAL), shapes) for window in other)
    assert not winograd.fits(ops.Conv2d(16, (3, 3), (1, 1), (1, 1), False, INITIAL, 2), shapes)
    assert not winograd.fits(ops.Conv2d(16, (3, 3), (1, 1), (1, 1), False, INITIAL, 1, (2, 2)), shapes)


@pytest.mark.parametrize(
    ("shape", "taps", "expected"),
    [
        ((1, 16, 16, 32, 32), 3, 43),
        ((4, 64, 64, 8, 8), 3, 43),
        ((1, 32, 16, 8, 8), 3, 43),
        ((1, 48, 16, 8, 8), 3, 23),  # too few outputs for so many weights
        ((1, 16, 48, 8, 8), 3, 23),
        ((8, 16, 16, 12, 8), 3, 43),
        ((8, 16, 16, 4, 8), 3, 23),  # half of a group
        ((8, 16, 16, 12, 8), 5, 25),
    ],
)
def test_winograd_takes_larger_tiles_where_they_pay_off(shape, taps, expected):
    n, c, k, h, w = shape
    op = ops.Conv2d(k, (taps, taps), (1, 1), (taps // 2, taps // 2), False, INITIAL)
    assert winograd.form(op, Shapes(((n, c, h, w),), (n, k, h, w), training=True)) == expected


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
def test_winograd_of_5x5_needs_more_outputs(shape, padding, expected):
    assert winograd_fits(*shape, 5, padding) == expected


@pytest.mark.parametrize("added", [False, True])
def test_it_is_onednn_that_normalises_where_vectors_are_shorter(monkeypatch, added):
    monkeypatch.setattr(LIBRARY, "wide", False)
    op = NormAddRelu(ops.BatchNorm(1e-3, 0.1), added=added)
    case = Case(op, ((2, 32, 3, 5),) * (1 + added))
    kernel = operators(LIBRARY)[NormAddRelu]
    made = Bench(case, kernel, "float32", given=given_in(case, "aBcd16b"))
    assert set(made.buffers.saved) == {"mean", "variance"} | (set() if added else {"workspace"})
    compare(kernel, case, tag="aBcd16b")


@pytest.mark.parametrize("tag", LAYOUTS)
def test_the_gradient_of_equals_goes_to_the_first(tag):
    op = ops.MaxPool2d((3, 2), (2, 1), (1, 1), True)
    case = Case(op, ((2, 17, 7, 6),))
    fast, slow = (
        Bench(case, TABLE[type(op)], "float32", given=(tag,)),
        Bench(case, NUMPY[type(op)], "float64"),
    )
    levels = np.random.default_rng(4).integers(0, 3, case.shapes[0])
    for bench in (fast, slow):
        bench.x[0][...] = levels
        bench.dy[...] = np.arange(bench.dy.size).reshape(bench.dy.shape) % 7
        bench.forward()
        bench.backward()
    np.testing.assert_array_equal(fast.dx[0], slow.dx[0])


@given(images, TAGS, TAGS)
@settings(max_examples=20)
def test_reorder(shape, source, target):
    bench = Bench(Case(Reorder(source, target), (shape,)), TABLE[Reorder], "float32", given=(source,))
    np.testing.assert_array_equal(bench.forward(), bench.x[0])
    bench.backward()
    np.testing.assert_array_equal(bench.dx[0], bench.dy)


@pytest.mark.parametrize("case", [case for case in CASES if not case.op.is_view(training=True)], ids=name)
def test_every_case_of_the_reference(case: Case):
    compare(TABLE[type(case.op)], case)
