"""Gradients of depthwise convolutions that oneDNN would compute by its reference code."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Shapes
from mpibow.kernels.isa import ISA
from mpibow.kernels.onednn.conv import Convolution
from mpibow.kernels.onednn.depthwise import TAPS
from mpibow.ops.fused import ConvRelu
from tests.kernels.against import compare
from tests.kernels.cases import INITIAL, Bench, Case
from tests.kernels.onednn import LIBRARY, TABLE, needs_onednn, needs_wide

pytestmark = needs_onednn

Pair = tuple[int, int]


def depthwise(
    channels: int,
    kernel: Pair,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    bias: bool = True,
) -> ops.Conv2d:
    return ops.Conv2d(channels, kernel, stride, padding, bias, INITIAL, channels, dilation)


def bench(op: ops.Conv2d, n: int = 3, side: int = 9) -> Bench:
    case = Case(op, ((n, op.channels, side, side + 2),))
    return Bench(case, TABLE[ops.Conv2d], "float32", given=("aBcd16b",))


def ours(made: Bench) -> bool:
    return "taps" in made.buffers.backward


@given(
    st.integers(1, 4),
    st.integers(1, 40),
    st.tuples(*[st.integers(1, TAPS + 3)] * 2),
    *[st.tuples(*[st.integers(1, 3)] * 2)] * 2,
    st.tuples(*[st.integers(1, 12)] * 2),
    *[st.booleans()] * 2,
    st.sampled_from([(), (0,)]),
    st.integers(0, 1000),
    st.data(),
)
@settings(max_examples=60)
def test_it_is_numpys(
    n, channels, kernel: Pair, stride: Pair, dilation: Pair, side: Pair, bias, relu,
    wanted, seed, data: st.DataObject,
):  # fmt: skip
    """Padding up to the window's reach: whole rows and columns of taps see nothing but padding."""
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    padding = data.draw(st.tuples(*[st.integers(0, each) for each in reach]))
    op, shape = depthwise(channels, kernel, stride, padding, dilation, bias), (n, channels, *side)
    try:
        op.infer(shape)
    except ShapeError:
        return  # windows larger than the image
    case = Case(ConvRelu(op) if relu else op, (shape,))
    compare(TABLE[type(case.op)], case, seed, wanted, "aBcd16b")


@pytest.mark.parametrize(
    ("kernel", "dilation"), [((5, 5), (1, 1)), ((2, 4), (1, 1)), ((3, 3), (2, 2)), ((TAPS + 1, 4), (1, 1))]
)
@pytest.mark.parametrize("channels", [2, 16, 20, 48])
@needs_wide
def test_windows_that_onednn_leaves_to_its_reference_code(kernel: Pair, dilation: Pair, channels):
    padding = tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))
    made = bench(depthwise(channels, kernel, padding=(padding[0], padding[1]), dilation=dilation))
    assert ours(made)
    assert made.shapes.formats.x == (f"aBcd{16 if ISA == 'AVX-512' else 8}b",)  # a register of channels
    assert "dweight" not in made.buffers.backward


def test_onednn_has_code_of_its_own_for_3x3():
    assert not ours(bench(depthwise(32, (3, 3), padding=(1, 1))))


@pytest.mark.parametrize("dilation", [(1, 1), (2, 2)])
def test_gradients_are_the_adjoints(dilation: Pair):
    """<dy, y> = <dx, x> = <dw, w>: convolution is linear in both. Off by less than one rounding of all its products."""
    made = bench(depthwise(33, (5, 5), (1, 2), (4, 2), dilation, bias=False), side=14)
    made.forward()
    made.backward()
    products = made.dy.astype(float) * made.y
    off = 6e-8 * float(np.abs(products).sum())
    for gradient, of in ((made.dx[0], made.x[0]), (made.dw["weight"], made.w["weight"])):
        assert abs(float((gradient.astype(float) * of).sum() - products.sum())) < off


def test_the_same_bits_every_time():
    op = depthwise(20, (7, 7), (1, 1), (6, 6), (2, 2))
    first, second = bench(op), bench(op)
    for made in (first, second):
        made.forward()
        made.backward()
    np.testing.assert_array_equal(first.dx[0], second.dx[0])
    for key, gradient in first.dw.items():
        np.testing.assert_array_equal(gradient, second.dw[key])


@pytest.mark.parametrize(
    "op",
    [
        ops.Conv2d(16, (3, 3), (1, 1), (2, 2), True, INITIAL),  # its weights' gradient
        ops.Conv2d(16, (3, 3), (2, 2), (2, 2), True, INITIAL, 1, (2, 2)),  # both
        ops.Conv2d(32, (5, 5), (1, 1), (4, 4), True, INITIAL, 4),
        ops.Conv2d(48, (3, 3), (1, 1), (6, 6), False, INITIAL, 16, (3, 3)),
    ],
)
def test_other_convolutions_are_matrix_products_instead(op: ops.Conv2d):
    channels = 16 if op.groups in (1, 16) else 32
    case = Case(op, ((2, channels, 12, 11),))
    compare(TABLE[ops.Conv2d], case, tag="aBcd16b")
    trio = Convolution(LIBRARY)._trio(op, Shapes(case.shapes, op.infer(*case.shapes), True, (0,)))
    assert not any(part.slow for part in (trio.forward, trio.data, trio.weights) if part)
