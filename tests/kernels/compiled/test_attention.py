"""Attention of more rows than are taken at a time, and of more columns than are kept; masks of every kind."""

import numpy as np
import pytest

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import FLOAT
from mpibow.kernels.compiled.attention import FEW, ROWS
from mpibow.kernels.compiled.heads import KEPT
from mpibow.kernels.compiled.table import OPERATORS
from mpibow.ops.fused import HeadsAttention
from tests.kernels.against import check
from tests.kernels.cases import Bench, Case

LENGTHS = {
    "one block": (FEW, FEW), "several": (2 * ROWS + 5, 2 * ROWS + 5), "more columns": (20, FEW + 9),
    "more rows": (3 * FEW, 37), "scores made again": (70, KEPT + 30), "and square": (KEPT + 19, KEPT + 19),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_heads_side_by_side(lengths, causal, packed):
    t, s = LENGTHS[lengths]
    shapes = ((2, t, 3 * 16),) if packed else ((2, t, 16), (2, s, 16), (2, s, 10))
    for training in (False, True):
        case = Case(HeadsAttention(ops.Attention(0.3, causal), 2, packed), shapes)
        check(Bench(case, OPERATORS[HeadsAttention], "float32", training=training))


@pytest.mark.parametrize("mask", ["", FLOAT, "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_attention(lengths, causal, mask):
    t, s = LENGTHS[lengths]
    shapes = ((2, 2, t, 8), (2, 2, s, 8), (2, 2, s, 5))
    if mask:
        shapes, dtypes = (*shapes, (2, 1, 1, s) if mask == "int32" else (t, s)), (FLOAT,) * 3 + (mask,)
    else:
        dtypes = (FLOAT,) * 3
    for training in (False, True):
        case = Case(ops.Attention(0.3, causal), shapes, dtypes, integers_below=9)
        bench = Bench(case, OPERATORS[ops.Attention], "float32", training=training)
        if mask:  # nothing is hidden from the first row, and all from the last
            bench.x[3].reshape(-1, s)[0], bench.x[3].reshape(-1, s)[-1] = 1, -np.inf if mask == FLOAT else 0
        check(bench)


@pytest.mark.parametrize("wanted", [(0,), (3,), (0, 1, 2, 3)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("ones", range(4))
def test_the_gradient_of_a_mask(ones, lengths, causal, wanted):
    """Of (n, heads, t, s) where no axis, or one, is broadcast; beside other gradients, and by itself."""
    t, s = LENGTHS[lengths]
    mask = tuple(1 if axis == ones else extent for axis, extent in enumerate((2, 2, t, s)))
    op, shapes = ops.Attention(0.3, causal), ((2, 2, t, 8), (2, 2, s, 8), (2, 2, s, 5), mask)
    check(Bench(Case(op, shapes, (FLOAT,) * 4), OPERATORS[ops.Attention], "float32", wanted=wanted))


def test_the_gradient_of_a_mask_of_heads_alone():
    op, shapes = HeadsAttention(ops.Attention(0.3, False), 2, True), ((2, 7, 3 * 16), (2, 1, 7))
    check(Bench(Case(op, shapes), OPERATORS[HeadsAttention], "float32", wanted=(1,)))


def test_a_row_with_all_columns_hidden_is_0_and_so_are_its_gradients():
    for dtype in (FLOAT, "bool"):
        case = Case(ops.Attention(0.3, False), ((2, 3, 4), (2, 5, 4), (2, 5, 4), (2, 1, 5)), (FLOAT,) * 3 + (dtype,))
        bench = Bench(case, OPERATORS[ops.Attention], "float32")
        bench.x[3][...] = [[[0] * 5], [[-np.inf if dtype == FLOAT else 0] * 5]]
        bench.x[3][0] = 1
        y = bench.forward()
        bench.backward()
        assert y[0].all()
        for array in (y, *bench.dx):
            assert array is None or not array[1].any()


def test_a_score_that_is_no_number_is_not_hidden():
    for bad in (np.nan, -np.nan, np.inf):
        bench = Bench(Case(ops.Attention(1.0, False), ((2, 4), (3, 4), (3, 4))), OPERATORS[ops.Attention], "float32")
        bench.x[0][1, 0], bench.x[1][...] = bad, 1
        assert np.isfinite(bench.forward()).all(axis=1).tolist() == [True, False]


def test_a_mask_of_other_integers_is_refused():
    case = Case(ops.Attention(0.3, False), ((2, 4, 8),) * 3 + ((4, 4),), (FLOAT,) * 3 + ("int16",))
    bench = Bench(case, OPERATORS[ops.Attention], "float32")
    with pytest.raises(ShapeError, match=r"^a mask must be of floats, or of integers of 1, 4 or 8 bytes, got int16$"):
        bench.forward()
