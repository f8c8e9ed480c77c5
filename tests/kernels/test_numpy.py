"""The reference kernels against slow definitions of their own, in plain loops and float64; float32 against that."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array, Kernel
from mpibow.kernels.numpy import OPERATORS
from tests.kernels.against import compare
from tests.kernels.cases import Bench, Case, name
from tests.kernels.operators import CASES, CHECKED
from tests.kernels.shapes import RANDOM, asked

KERNEL_CASES = [case for case in CASES if CHECKED[type(case.op)].plain is not None]
TOLERANCE = 1e-12


def kernel_of(case: Case) -> Kernel:
    return OPERATORS[type(case.op)]


def plain_of(case: Case):
    return CHECKED[type(case.op)].plain


def close(got: Array, expected: Array) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE * max(1.0, float(np.abs(expected).max())))


RUNS = [(case, training) for case in KERNEL_CASES for training in (True, False) if not case.op.is_view(training)]


@pytest.mark.parametrize(("case", "training"), RUNS, ids=lambda v: name(v) if isinstance(v, Case) else f"training={v}")
def test_forward(case: Case, training):
    bench = Bench(case, kernel_of(case), "float64", training=training)
    close(bench.forward(), plain_of(case)(case.op, *bench.x, bench.w))


@pytest.mark.parametrize("op", [op for op in OPERATORS if op in RANDOM], ids=lambda op: op.__name__)
@settings(max_examples=25)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_float32_is_close_to_float64(op: type, data: st.DataObject, seed):
    case, wanted = data.draw(asked(RANDOM[op]))
    compare(OPERATORS[op], case, seed, wanted)


@pytest.mark.parametrize("case", [case for case in CASES if type(case.op) in OPERATORS], ids=name)
def test_float32_of_every_case(case: Case):
    compare(kernel_of(case), case)


def bench_of(op, *inputs: Array, dtypes: tuple[str, ...] = (FLOAT,)) -> Bench:
    """A bench whose inputs are these."""
    bench = Bench(Case(op, tuple(x.shape for x in inputs), dtypes), OPERATORS[type(op)], "float64")
    for array, x in zip(bench.x, inputs, strict=True):
        array[...] = x
    return bench


def forward(op, *inputs: Array, dtypes: tuple[str, ...] = (FLOAT,)) -> Array:
    return bench_of(op, *inputs, dtypes=dtypes).forward()


def test_the_first_of_equals_wins_a_window():
    x = np.array([[1.0, 7, 7], [7, 0, 7], [2, 2, 2]]).reshape(1, 1, 3, 3)
    bench = bench_of(ops.MaxPool2d((2, 2), (1, 1)), x)
    np.testing.assert_array_equal(bench.forward(), [[[[7, 7], [7, 7]]]])
    bench.dy[...] = [[[[1, 10], [100, 1000]]]]
    OPERATORS[ops.MaxPool2d].backward(bench.call(backward=True))()
    np.testing.assert_array_equal(bench.dx[0], [[[[0, 11, 0], [100, 0, 1000], [0, 0, 0]]]])


def test_padding_never_wins_not_even_over_minus_infinity():
    bench = bench_of(ops.MaxPool2d((2, 2), (2, 2), (1, 1)), np.full((1, 1, 2, 2), -np.inf))
    np.testing.assert_array_equal(bench.forward(), np.full((1, 1, 2, 2), -np.inf))
    bench.dy[...] = [[[[1, 2], [3, 4]]]]
    OPERATORS[ops.MaxPool2d].backward(bench.call(backward=True))()
    np.testing.assert_array_equal(bench.dx[0], bench.dy)


def test_the_first_of_equals_is_the_maximum():
    bench = bench_of(ops.Maximum(3), np.array([1.0, 2, 0, 5]), np.array([1.0, 2, 3, np.nan]), np.array([1.0, 4, 3, 0]))
    np.testing.assert_array_equal(bench.forward(), [1, 4, 3, np.nan])
    bench.dy[...] = [1, 10, 100, 1000]
    OPERATORS[ops.Maximum].backward(bench.call(backward=True))()
    np.testing.assert_array_equal(bench.dx, [[1, 0, 0, 1000], [0, 0, 100, 0], [0, 10, 0, 0]])


def test_a_window_of_more_than_256_elements():
    x = np.zeros((1, 1, 17, 17))
    x[0, 0, 16, 15] = 1
    bench = bench_of(ops.MaxPool2d((17, 17), (1, 1)), x)
    assert bench.forward().tolist() == [[[[1.0]]]]
    bench.dy[...] = 3
    OPERATORS[ops.MaxPool2d].backward(bench.call(backward=True))()
    np.testing.assert_array_equal(bench.dx[0], 3 * x)


PASS_ON = [
    ops.MaxPool2d((2, 2), (2, 2)),
    ops.MaxPool2d((3, 3), (2, 2), (1, 1)),
    ops.AvgPool2d((2, 2), (2, 2)),
    ops.AvgPool2d((3, 3), (2, 2), (1, 1), count_padding=False),
    ops.AdaptiveAvgPool2d((1, 3)),
    ops.GlobalAvgPool2d(),
    ops.Relu(),
    ops.LeakyRelu(0.1),
    ops.ClippedRelu(6.0),
    ops.Gelu(False),
    ops.Gelu(True),
    ops.Tanh(),
    ops.Softmax(3),
]


@pytest.mark.parametrize("op", PASS_ON, ids=repr)
@pytest.mark.parametrize("place", range(4))
def test_nan_is_passed_on(op, place):
    x = np.ones((1, 1, 2, 2))
    x.reshape(-1)[place] = np.nan
    assert np.isnan(forward(op, x)).any()


def test_no_overflow():
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_array_equal(forward(ops.Sigmoid(), np.array([[-1e4, 0.0, 1e4]])), [[0.0, 0.5, 1.0]])
        logits, label = np.array([[1e4, -1e4, 0.0], [1e4, -1e4, 0.0]]), np.array([0, 1])
        losses = forward(ops.SoftmaxCrossEntropy(), logits, label, dtypes=(FLOAT, "int32"))
    np.testing.assert_array_equal(losses, [0.0, 2e4])


def test_gelu_is_erfs_to_the_last_bits_and_to_many_digits_where_it_is_small():
    x = np.concatenate([np.linspace(-37.0, 9.0, 20001), [0.0, -1e-300, 1e-300]])
    got = forward(ops.Gelu(False), x)
    expected = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=0)  # exp(-x^2 / 2) doubles errors of x^2 / 2, up to 680
    near = np.abs(x) < 6
    np.testing.assert_allclose(got[near], expected[near], rtol=1e-14, atol=0)
    positive = x > 0
    np.testing.assert_allclose(got[positive], expected[positive], rtol=1e-15, atol=0)


def test_the_first_of_equal_logits_is_the_guess():
    logits, label = np.array([[1.0, 3, 3], [3, 3, 1], [0, 0, 0]]), np.array([2, 0, 0])
    assert forward(ops.Accuracy(), logits, label, dtypes=(FLOAT, "int32")).tolist() == [0.0, 1.0, 1.0]


def test_a_label_that_is_no_class_is_a_miss_and_so_is_nan():
    logits = np.array([[1.0, 2, 3], [1, 2, 3], [9, 2, 1], [np.nan, 2, 3], [np.nan, 2, 3]])
    for k, hits in ((2, [0.0, 0, 1, 0, 0]), (3, [0.0, 0, 1, 0, 1])):
        got = forward(ops.Accuracy(k), logits, np.array([-100, 3, 1, 0, 1]), dtypes=(FLOAT, "int32"))
        assert got.tolist() == hits, k


def test_the_first_of_equals_is_ahead_among_the_k_best():
    logits, label = np.array([[1.0, 3, 3, 3]] * 4), np.array([0, 1, 2, 3])
    assert forward(ops.Accuracy(2), logits, label, dtypes=(FLOAT, "int32")).tolist() == [0.0, 1.0, 1.0, 0.0]


def test_an_ignored_sample_has_no_loss_and_no_gradient_whatever_its_logits():
    logits, label = np.array([[np.nan, np.inf], [1.0, 1.0]]), np.array([-100, 1])
    bench = bench_of(ops.SoftmaxCrossEntropy(0.1, -100), logits, label, dtypes=(FLOAT, "int32"))
    with np.errstate(invalid="ignore"):
        assert bench.forward().tolist() == pytest.approx([0.0, np.log(2)])
        OPERATORS[ops.SoftmaxCrossEntropy].backward(bench.call(backward=True))()
    assert bench.dx[0][0].tolist() == [0.0, 0.0]
    assert np.isfinite(bench.dx[0]).all()


def test_an_index_outside_a_table_is_that_of_its_nearest_row():
    op, rating = ops.MatrixFactorisation(3, 2, 1, ops.Constant()), np.zeros(2)
    bench = bench_of(op, np.array([-1, 7]), np.array([5, -3]), rating, dtypes=("int32", "int32", FLOAT))
    bench.w["user"][...], bench.w["item"][...] = [[1], [10], [2]], [[3], [4]]
    assert bench.forward().tolist() == [16.0, 36.0]
    bench.dy[...] = 1
    OPERATORS[type(op)].backward(bench.call(backward=True))()
    assert bench.dw["user"].tolist() == [[2 * 4 * 4], [0], [2 * 6 * 3]]
    assert bench.dw["item"].tolist() == [[2 * 6 * 2], [2 * 4 * 1]]


def counters(count: int) -> Array:
    return np.array([[1, 0, sample, 0] for sample in range(count)], np.uint32)


def test_every_window_is_as_likely_and_half_of_them_are_flipped():
    count = 9 * 400
    image = np.broadcast_to(np.arange(16.0).reshape(1, 1, 4, 4), (count, 1, 4, 4))
    corners = forward(ops.Augment(0, (2, 2), True), image, counters(count), dtypes=(FLOAT, "uint32"))[:, 0]
    flipped = corners[:, 0, 0] > corners[:, 0, 1]
    assert flipped.mean() == pytest.approx(0.5, abs=4 * 0.5 / count**0.5)
    places, times = np.unique(np.minimum(corners[:, 0, 0], corners[:, 0, 1]), return_counts=True)
    assert places.tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert np.abs(times - 400).max() < 4 * 400**0.5
    for place in places:  # place and flip know nothing of each other
        assert 0.38 < flipped[np.minimum(corners[:, 0, 0], corners[:, 0, 1]) == place].mean() < 0.62


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.75])
def test_dropout_drops_its_rate_and_keeps_the_mean(rate):
    kept = forward(ops.Dropout(rate), np.ones((40, 1001)), counters(40), dtypes=(FLOAT, "uint32"))
    assert np.unique(kept).tolist() == pytest.approx([0.0, 1 / (1 - rate)])
    deviation = (rate * (1 - rate) / kept.size) ** 0.5
    assert (kept == 0).mean() == pytest.approx(rate, abs=4 * deviation)
    for axis in (0, 1):  # no row or column stands out: six deviations of its own
        part = (kept == 0).mean(axis=axis)
        assert np.abs(part - rate).max() < 6 * (rate * (1 - rate) / kept.shape[axis]) ** 0.5
