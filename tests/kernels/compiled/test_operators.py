"""The compiled kernels against NumPy's in float64: any shape, setting and layout; what they do with NaN; which bits."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array, Shapes
from mpibow.graph.steps import Sum
from mpibow.kernels.compiled import table
from mpibow.kernels.compiled.command import Command
from mpibow.kernels.compiled.elementwise import add_relu
from mpibow.kernels.compiled.table import OPERATORS
from mpibow.kernels.numpy import OPERATORS as NUMPY
from mpibow.ops.fused import AddRelu, ExpandMultiply
from tests.kernels.against import check, compare, twin
from tests.kernels.cases import INITIAL, Bench, Case, name
from tests.kernels.draw import LAYOUTS
from tests.kernels.operators import CASES
from tests.kernels.shapes import RANDOM, asked


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.kind)
@settings(max_examples=25)
@given(data=st.data(), seed=st.integers(0, 1000), tag=st.sampled_from(LAYOUTS))
def test_it_is_numpys(op: type, data: st.DataObject, seed, tag):
    case, wanted = data.draw(asked(RANDOM[op]))
    compare(OPERATORS[op], case, seed, wanted, tag)


@pytest.mark.parametrize("case", [case for case in CASES if type(case.op) in OPERATORS], ids=name)
def test_it_is_a_command(case: Case):
    if case.op.is_view(True):
        return
    bench = Bench(case, OPERATORS[type(case.op)], "float32")
    assert isinstance(bench.kernel.forward(bench.call(backward=False)), Command)
    if bench.kernel.backward is not None:
        assert isinstance(bench.kernel.backward(bench.call(backward=True)), Command)


def test_integers_beyond_what_a_float_holds():
    """Compared, chosen and copied exactly."""
    near = np.array([2**53, 2**53 + 1])
    for op, inputs, expected in (
        (ops.Compare("=="), (near, near[::-1]), [False, False]),
        (ops.Where(), (np.array([True, False]), near[::-1], near), near[[1, 1]].tolist()),
        (ops.Cast("int64"), (near,), near.tolist()),
    ):
        case = Case(op, ((2,),) * len(inputs), tuple(each.dtype.name for each in inputs))
        bench = Bench(case, OPERATORS[type(op)], "float32", training=False)
        for x, values in zip(bench.x, inputs, strict=True):
            x[:] = values
        assert bench.forward().tolist() == expected


def formats(op, given: tuple[str, ...], *shapes: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    asked = OPERATORS[type(op)].formats(op, Shapes(shapes, op.infer(*shapes), True, (0,)), given)
    return asked.x, asked.y


def test_a_layout_stays_where_it_can():
    image, odd = (2, 32, 4, 5), (2, 24, 4, 5)
    blocked, plain = "aBcd16b", "abcd"
    for op in (ops.Relu(), ops.LeakyRelu(0.1), ops.ClippedRelu(6.0), ops.Tanh(), ops.Gelu(False)):
        assert formats(op, (blocked,), odd) == ((blocked,), blocked)
    assert formats(ops.Sigmoid(), (blocked,), image) == ((blocked,), blocked)
    assert formats(ops.Sigmoid(), (blocked,), odd) == ((plain,), plain)  # its padding would be 0.5
    for op in (ops.Add((1.0, 2.0)), ops.Multiply(2), ops.Maximum(2), AddRelu(), Sum()):
        assert formats(op, (blocked, plain), odd, odd) == ((blocked, blocked), blocked)
    assert formats(ops.Concat(2, 1), (blocked, plain), image, odd) == ((blocked, blocked), blocked)
    assert formats(ops.Concat(2, 1), (blocked, blocked), odd, image) == ((plain, plain), plain)
    assert formats(ops.PadChannels(48), (blocked,), image) == ((blocked,), blocked)
    assert formats(ops.PadChannels(48), (blocked,), odd) == ((plain,), plain)
    for layout in (blocked, plain, "acdb"):
        assert formats(ops.GlobalAvgPool2d(), (layout,), image) == ((layout,), "ab")
    assert formats(ops.GlobalAvgPool2d(), (blocked,), odd) == ((plain,), "ab")
    assert formats(ops.GlobalAvgPool2d(), ("ABcd16b16a",), image) == ((plain,), "ab")


def bench(case: Case) -> Bench:
    return Bench(case, OPERATORS[type(case.op)], "float32")


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, 1e4, -1e4, 1e-30, -1e-30, 3.0, -90.0, 89.0], np.float32)
ELEMENTWISE = [
    ops.Relu(), ops.ClippedRelu(6.0), ops.LeakyRelu(0.1), ops.LeakyRelu(1.5), ops.Sigmoid(), ops.Tanh(),
    ops.Gelu(False), ops.Gelu(True),
]  # fmt: skip


@pytest.mark.parametrize("op", ELEMENTWISE, ids=repr)
def test_numbers_that_are_none_and_large_ones(op):
    mine = bench(Case(op, ((3, 11),)))
    mine.x[0][...] = SPECIAL
    theirs = twin(mine)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(mine.forward(), theirs.forward(), rtol=1e-6, atol=1e-7)


FORMULAS = [
    ops.Abs(), ops.Exp(), ops.Log(), ops.Negative(), ops.Silu(), ops.Softplus(), ops.Sqrt(), ops.Affine(-2.0, 1.0),
    ops.Power(2.0), ops.Power(-1.0), ops.Power(0.5), ops.Power(1.5), ops.Huber(1.0), ops.Compare("<=", 0.0),
    ops.Compare("!=", 3.0), ops.DivideBy(0.1), ops.Expm1(),
]  # fmt: skip


@pytest.mark.parametrize("op", FORMULAS, ids=repr)
def test_formulas_of_numbers_that_are_none_and_large_ones(op):
    """exp of -90 is 0, where NumPy's is a denormal number."""
    mine = bench(Case(op, ((3, 11),)))
    mine.x[0][...] = SPECIAL
    theirs = twin(mine, "float32")
    np.testing.assert_allclose(mine.forward(), theirs.forward(), rtol=1e-6, atol=1e-37)
    if op.differentiable is not None:
        mine.backward()
        theirs.backward()
        np.testing.assert_allclose(mine.dx[0], theirs.dx[0], rtol=1e-6, atol=1e-37)


def test_logarithms_of_all_magnitudes():
    x = np.concatenate([np.float32(2) ** np.arange(-149, 128), np.linspace(0.3, 3, 4001)]).astype(np.float32)
    mine = bench(Case(ops.Log(), (x.shape,)))
    mine.x[0][...] = x
    expected = np.log(x.astype(np.float64))
    assert (np.abs(mine.forward() - expected) <= 1.2e-7 * np.maximum(np.abs(expected), 1e-3)).all()


def test_a_sure_answer_costs_what_is_left_of_it():
    """log(1 + exp(-x)) of large x is exp(-x), of which 1 + exp(-x) keeps little or nothing."""
    mine = bench(Case(ops.BinaryCrossEntropy(), ((1, 4),) * 2))
    mine.x[0][...], mine.x[1][...] = [[5, 12, 20, 60]], 1
    np.testing.assert_allclose(mine.forward()[0], np.log1p(np.exp([-5.0, -12, -20, -60])), rtol=1e-5)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_nan_is_the_largest_of_an_axis(axes):
    for bad in (np.nan, -np.nan):
        mine = bench(Case(ops.ReduceMax(axes), ((3, 40),)))
        mine.x[0][1, 2] = bad
        theirs = twin(mine)
        np.testing.assert_array_equal(np.isnan(mine.forward()), np.isnan(theirs.forward()))
        with np.errstate(all="ignore"):
            mine.backward()
            theirs.backward()
        np.testing.assert_array_equal(np.isnan(mine.dx[0]), np.isnan(theirs.dx[0]))


@pytest.mark.parametrize("op", [ops.LogSoftmax, ops.Softmax])
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_large_logits_of_infinite_ones_and_of_nan(axis, op: type):
    mine = bench(Case(op(axis), ((6, 6),)))
    rows = [[1e4, -1e4, 0, 1, 2, 3], [np.nan, 1, 2, 3, 4, 5], [np.inf, 1, 2, 3, 4, 5], [-np.inf, 1, 2, 3, 4, 5]]
    rows += [[-np.inf] * 6, [-3e4, -1e4, -2e4, -1e4, -5e4, -1e5]]
    mine.x[0][...] = np.array(rows) if axis else np.array(rows).T
    theirs = twin(mine)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(mine.forward(), theirs.forward(), rtol=1e-6, atol=1e-30)


def test_a_number_that_no_row_has_takes_the_nearest():
    table = bench(Case(ops.Embedding(3, 2, INITIAL), ((4,),), ("int32",)))
    table.x[0][...] = [-7, 3, 1, 100]
    check(table)
    along = bench(Case(ops.Gather(1), ((1, 3), (1, 4)), (FLOAT, "int64")))
    along.x[1][...] = [[-7, 3, 1, 100]]
    check(along)


def test_the_gradient_of_a_weight_by_itself_is_copied():
    mine = bench(Case(ops.Parameter((3, 4), INITIAL, True), ()))
    mine.backward()
    np.testing.assert_array_equal(mine.dw["weight"], mine.dy)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    "op", [ops.Permute((2, 0, 1)), ops.Slice(((1, 3, 1), (0, 5, 2), (2, 4, 1))), ops.Split((1, 2), 0)], ids=repr
)
def test_integers_are_moved_as_they_are(op, dtype):
    mine = bench(Case(op, ((3, 5, 4),), (dtype,), 1 << 31))
    theirs = Bench(mine.case, NUMPY[type(op)], "float32")
    np.testing.assert_array_equal(mine.forward(), theirs.forward())


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 40, 33), (0, 2, 1)),
        ((5, 2, 3, 16), (0, 2, 1, 3)),
        ((3, 4, 5, 6, 7), (4, 2, 0, 3, 1)),
        ((1, 1, 1), (2, 0, 1)),
        ((2, 1, 17, 1), (2, 3, 0, 1)),
        ((2,) * 9, (8, 6, 4, 2, 0, 1, 3, 5, 7)),
    ],
)
def test_axes_in_any_order(shape, axes):
    compare(OPERATORS[ops.Permute], Case(ops.Permute(axes), (shape,)))


def test_an_image_stays_in_its_layout_where_a_channels_number_is_broadcast():
    image, channels = (2, 32, 4, 5), (2, 32, 1, 1)
    assert formats(ExpandMultiply(), ("abcd", "aBcd16b"), channels, image) == (("abcd", "aBcd16b"), "aBcd16b")
    assert formats(ExpandMultiply(), ("abcd", "aBcd16b"), (2, 24, 1, 1), (2, 24, 4, 5)) == (("abcd", "abcd"), "abcd")


@pytest.mark.parametrize("op", [ops.ReduceSum, ops.ReduceMean, ops.ReduceMax])
@pytest.mark.parametrize("axes", [(0, 2, 4, 6), (1, 3, 5), (1, 2, 6), (6,), (0,), (0, 1, 2, 3, 4, 5, 6)])
def test_sums_over_any_axes(op, axes):
    compare(OPERATORS[op], Case(op(axes), ((3, 2, 4, 1, 5, 2, 3),)))


@pytest.mark.parametrize(
    "op", [Sum(), ops.Multiply(3), ops.Maximum(3), ops.Add((1.0, 2.0, 1.0))], ids=lambda op: op.kind
)
def test_nan_of_any_input_is_passed_on(op):
    for place in range(3):
        mine = bench(Case(op, ((2, 5),) * 3))
        mine.x[place][1, 2] = np.nan
        assert np.argwhere(np.isnan(mine.forward())).tolist() == [[1, 2]]


def loss(op, logits, label) -> tuple[Array, Array]:
    """Losses and gradients for dy = 1."""
    logits, label = np.array(logits), np.array(label)
    bench = Bench(Case(op, (logits.shape, label.shape), (FLOAT, "int32")), OPERATORS[type(op)], "float32")
    bench.x[0][...], bench.x[1][...], bench.dy[...] = logits, label, 1
    bench.forward()
    bench.backward()
    return bench.y, bench.dx[0]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("classes", [3, 40])
def test_a_diverged_loss_is_not_hidden(classes, bad, smoothing):
    for place in range(classes):
        logits = np.zeros((2, classes))
        logits[1, place] = bad
        losses, slopes = loss(ops.SoftmaxCrossEntropy(smoothing), logits, [1, 1])
        assert np.isfinite(losses).tolist() == [True, False]
        assert not np.isfinite(slopes[1]).any()


def test_losses_of_large_logits_and_of_infinite_ones():
    low = -np.inf
    logits = [[1e4, -1e4, 0], [1e4, -1e4, 0], [0, low, 0], [0, low, 0], [-3e4, -1e4, -2e4], [low, -1e4, low]]
    losses, _ = loss(ops.SoftmaxCrossEntropy(), logits, [0, 1, 0, 1, 2, 1])
    np.testing.assert_allclose(losses, [0, 2e4, np.log(2), np.inf, 1e4, 0], rtol=1e-7)


def test_an_ignored_sample_and_one_of_no_class():
    logits = [[np.nan, np.inf], [1.0, 1.0], [1.0, 2.0], [1.0, 2.0]]
    losses, slopes = loss(ops.SoftmaxCrossEntropy(0.1, -100), logits, [-100, 1, 2, -1])
    np.testing.assert_allclose(losses, [0, np.log(2), np.nan, np.nan], rtol=1e-6)
    assert slopes[0].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(slopes[1], [0.45, -0.45], rtol=1e-6)
    count = bench(Case(ops.LabelCount(-100, (1.0, 2.0)), ((4,),), ("int32",)))
    count.x[0][...] = [-100, 1, 2, -1]
    np.testing.assert_array_equal(count.forward(), [0, 2, np.nan, np.nan])


def test_accuracy_takes_nan_for_ahead_of_all():
    logits = np.array([[1.0, 2, 3], [1, 2, 3], [9, 2, 1], [np.nan, 2, 3], [np.nan, 2, 3]])
    for k, hits in ((1, [0.0, 0, 0, 0, 0]), (2, [0.0, 0, 1, 0, 0]), (3, [0.0, 0, 1, 0, 1])):
        bench = Bench(Case(ops.Accuracy(k), ((5, 3), (5,)), (FLOAT, "int32")), OPERATORS[ops.Accuracy], "float32")
        bench.x[0][...], bench.x[1][...] = logits, [-100, 3, 1, 0, 1]
        assert bench.forward().tolist() == hits, k


def test_an_index_outside_a_table_is_that_of_its_nearest_row():
    case = Case(ops.MatrixFactorisation(3, 2, 1, INITIAL), ((2,),) * 3, ("int32", "int64", FLOAT))
    mine = bench(case)
    mine.x[0][...], mine.x[1][...] = [-1, 7], [5, -3]
    check(mine)


def test_add_relu_in_place():
    x0, x1 = np.array([1, -2, np.nan, 3], np.float32), np.array([-3, 3, 0, 1], np.float32)
    add_relu.command(x=x0, x1=x1, y=x0)()
    np.testing.assert_array_equal(x0, [0, 1, np.nan, 4])


def test_every_module_with_kernels_is_in_the_table():
    found = {path.stem for path in Path(table.__file__).parent.glob("*.py") if "\nKERNELS" in path.read_text("utf-8")}
    assert found == set(table.MODULES)
