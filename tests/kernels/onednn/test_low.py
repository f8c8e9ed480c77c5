"""Our own convolutions on low images, against NumPy, and when they are chosen."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.graph import Shapes
from mpibow.kernels.onednn import low
from mpibow.ops.fused import ConvRelu
from tests.kernels.against import compare
from tests.kernels.cases import INITIAL, Bench, Case
from tests.kernels.onednn import TABLE, needs_onednn, needs_wide


def conv(k: int, stride: int, bias: bool = False) -> ops.Conv2d:
    return ops.Conv2d(k, (3, 3), (stride, stride), (1, 1), bias, INITIAL)


@needs_onednn
@given(
    st.integers(1, 4), st.sampled_from(get_args(low.Wide)), st.integers(1, 5), st.integers(1, 2),
    *[st.sampled_from([32, 64])] * 2, *[st.booleans()] * 2,
)  # fmt: skip
@settings(max_examples=60)
def test_against_numpy(
    strips, wide, high, stride, c, k, bias, relu
):  # fmt: skip
    op, n = conv(k, stride, bias), strips * max(1, low.STRIP // wide)
    case = Case(ConvRelu(op) if relu else op, ((n, c, stride * high, stride * wide),))
    compare(low.KERNEL, case, tag="aBcd16b")


def bench(n: int, high: int, wide: int, stride: int) -> Bench:
    case = Case(conv(32, stride), ((n, 64, stride * high, stride * wide),))
    return Bench(case, low.KERNEL, "float32", given=("aBcd16b",))


@needs_wide
@pytest.mark.parametrize("wide", [1, 3, 4, 8])
@pytest.mark.parametrize("stride", [1, 2])
def test_an_image_has_the_same_bits_in_every_batch(wide, stride):
    n = max(1, low.STRIP // wide)
    whole, part = bench(3 * n, 3, wide, stride), bench(n, 3, wide, stride)
    assert set(whole.buffers.forward) == set(part.buffers.forward) == {"zeros"}
    part.x[0][...], part.w["weight"][...], part.dy[...] = whole.x[0][n : 2 * n], whole.w["weight"], whole.dy[n : 2 * n]
    for each in (whole, part):
        each.forward()
        each.backward()
    np.testing.assert_array_equal(part.y, whole.y[n : 2 * n])
    np.testing.assert_array_equal(part.dx[0], whole.dx[0][n : 2 * n])


@needs_wide
@pytest.mark.parametrize(("x", "mine"), [((8, 32, 4, 4), True), ((8, 32, 8, 8), False)])
def test_the_table_has_it(x, mine):
    made = Bench(Case(conv(32, 1), (x,)), TABLE[ops.Conv2d], "float32", given=("aBcd16b",))
    assert (set(made.buffers.forward) == {"zeros"}) == mine


@pytest.mark.parametrize(
    ("op", "x"),
    [
        (conv(32, 1), (8, 32, 8, 8)),  # Winograd's
        (conv(32, 2), (8, 32, 18, 18)),  # wide
        (conv(32, 2), (8, 32, 7, 8)),  # an odd height
        (conv(32, 1), (8, 48, 4, 4)),
        (conv(16, 1), (8, 32, 4, 4)),
        (ops.Conv2d(32, (3, 3), (1, 1), (0, 0), False, INITIAL), (8, 32, 6, 6)),
        (ops.Conv2d(32, (1, 1), (1, 1), (0, 0), False, INITIAL), (8, 32, 4, 4)),
        (ops.Conv2d(32, (3, 3), (1, 2), (1, 1), False, INITIAL), (8, 32, 4, 8)),
        (ops.Conv2d(32, (3, 3), (1, 1), (2, 2), False, INITIAL, 1, (2, 2)), (8, 32, 4, 4)),
        (ops.Conv2d(32, (3, 3), (1, 1), (1, 1), False, INITIAL, 2), (8, 32, 4, 4)),
    ],
)
def test_all_else_is_left_to_others(op: ops.Conv2d, x):
    def fits(op: ops.Conv2d, x: tuple[int, ...]) -> bool:
        return low.fits(op, Shapes((x,), op.infer(x), training=True, wanted=(0,)))

    assert fits(conv(32, 1), (8, 32, 4, 4))
    assert fits(conv(32, 1), (1, 32, 4, 4)) == (low.STRIP == 1)  # else half a strip
    assert not fits(op, x)
