"""The compiled kernels against NumPy's in float64: any shape, setting and layout; what they do with NaN; which bits."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="numba is not installed: pip install mpibow[cpu]")

from mpibow import ops
from mpibow.graph.formats import canonical
from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Call, Kernel, Run, Shapes
from mpibow.graph.steps import Sum
from mpibow.kernels.compiled.command import Command, command
from mpibow.kernels.compiled.elementwise import add_relu
from mpibow.kernels.compiled.table import OPERATORS
from mpibow.kernels.numpy import OPERATORS as NUMPY
from mpibow.ops.fused import AddRelu
from tests.kernels.cases import CASES, INITIAL, Bench, Case, name
from tests.kernels.compiled.test_augment import EXACT

LAYOUTS = ("abcd", "aBcd16b", "aBcd8b", "acdb")
IMAGES = st.tuples(st.integers(1, 3), st.sampled_from([1, 3, 8, 16, 20, 32, 48]), st.integers(1, 9), st.integers(1, 9))
ROWS = st.tuples(st.integers(1, 9), st.integers(1, 70))
ANY = st.one_of(IMAGES, ROWS, st.tuples(st.integers(1, 2), st.integers(1, 3000)))
SMOOTHING = st.sampled_from([0.0, 0.1, 0.5])
LABELS = st.sampled_from(["int32", "int64"])


def added(call: Call) -> Run:
    return lambda: np.copyto(call.y, np.maximum(call.x[0] + call.x[1], 0))


def added_back(call: Call) -> Run:
    def run() -> None:
        for dx in call.dx:
            np.copyto(dx, call.dy * (call.y > 0))

    return run


REFERENCE = {**NUMPY, AddRelu: Kernel(added, added_back)}


def one(op: Any, shapes: st.SearchStrategy[Any]) -> st.SearchStrategy[Case]:
    return shapes.map(lambda shape: Case(op, (shape,)))


def several(make: Callable[[int], Any], least: int = 2) -> st.SearchStrategy[Case]:
    return st.builds(lambda n, shape: Case(make(n), (shape,) * n), st.integers(least, 5), ANY)


@st.composite
def adds(draw: Any) -> Case:
    coefficients = draw(st.lists(st.sampled_from([1.0, -1.0, 0.5, 3.0]), min_size=2, max_size=4))
    return Case(ops.Add(tuple(coefficients)), (draw(ANY),) * len(coefficients))


@st.composite
def concats(draw: Any) -> Case:
    first = draw(ANY)
    axis, count = draw(st.integers(0, len(first) - 1)), draw(st.integers(1, 4))
    extent = st.sampled_from([16, 32, 8]) if draw(st.booleans()) else st.integers(1, 20)
    shapes = [(*first[:axis], draw(extent), *first[axis + 1 :]) for _ in range(count)]
    return Case(ops.Concat(count, axis), tuple(shapes))


@st.composite
def losses(draw: Any) -> Case:
    n, classes = draw(ROWS)
    ignore = draw(st.sampled_from([None, 0, -100, classes]))
    op = ops.SoftmaxCrossEntropy(draw(SMOOTHING), ignore)
    return Case(op, ((n, classes), (n,)), (FLOAT, draw(LABELS)), classes + (ignore == classes))


@st.composite
def accuracies(draw: Any) -> Case:
    n, classes = draw(ROWS)
    op = ops.Accuracy(draw(st.integers(1, classes)))
    return Case(op, ((n, classes), (n,)), (FLOAT, draw(LABELS)), classes + 1)  # one more is no class


@st.composite
def norms(draw: Any) -> Case:
    shape = draw(ANY)
    return Case(ops.LayerNorm(draw(st.integers(1, len(shape) - 1)), draw(st.sampled_from([1e-2, 1.0]))), (shape,))


@st.composite
def factorisations(draw: Any) -> Case:
    n, users, items = draw(st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 9)))
    op = ops.MatrixFactorisation(users, items, draw(st.integers(1, 40)), INITIAL)
    return Case(op, ((n,),) * 3, (draw(LABELS), draw(LABELS), FLOAT), min(users, items))


@st.composite
def normalisations(draw: Any) -> Case:
    shape, dtype = draw(ANY), draw(st.sampled_from(["uint8", FLOAT, "int16"]))
    c = shape[1]
    means = draw(st.sampled_from([c, prod(shape[1:])]))
    op = ops.Normalise(tuple(np.linspace(-3, 120, means).tolist()), tuple(np.linspace(1, 60, c).tolist()))
    return Case(op, (shape,), (dtype,), 256)


RANDOM: dict[type, st.SearchStrategy[Case]] = {
    AddRelu: ANY.map(lambda shape: Case(AddRelu(), (shape,) * 2)),
    Sum: several(lambda n: Sum()),
    ops.Accuracy: accuracies(),
    ops.Add: adds(),
    ops.ClippedRelu: one(ops.ClippedRelu(0.7), ANY),
    ops.Concat: concats(),
    ops.Dropout: st.builds(
        lambda rate, shape: Case(ops.Dropout(rate), (shape, (shape[0], 4)), (FLOAT, "uint32"), 1 << 32),
        st.sampled_from([0.1, 0.5, 0.999]),
        ANY,
    ),
    ops.Gelu: st.booleans().flatmap(lambda tanh: one(ops.Gelu(tanh), ANY)),
    ops.GlobalAvgPool2d: one(ops.GlobalAvgPool2d(), IMAGES),
    ops.LayerNorm: norms(),
    ops.LeakyRelu: st.sampled_from([0.0, 0.1, 1.5]).flatmap(lambda slope: one(ops.LeakyRelu(slope), ANY)),
    ops.MatrixFactorisation: factorisations(),
    ops.Maximum: several(ops.Maximum),
    ops.Multiply: several(ops.Multiply),
    ops.Normalise: normalisations(),
    ops.PadChannels: st.builds(
        lambda more, shape: Case(ops.PadChannels(shape[1] + more), (shape,)), st.sampled_from([0, 1, 16, 32]), ANY
    ),
    ops.Relu: one(ops.Relu(), ANY),
    ops.Sigmoid: one(ops.Sigmoid(), ANY),
    ops.SoftCrossEntropy: st.builds(
        lambda smoothing, shape: Case(ops.SoftCrossEntropy(smoothing), (shape,) * 2), SMOOTHING, ROWS
    ),
    ops.SoftmaxCrossEntropy: losses(),
    ops.Tanh: one(ops.Tanh(), ANY),
}

# Differences of terms that may be larger than what is left: their rounding is in proportion to these, which are below
# this number (inputs are standard normal: below 6, times coefficients; layer_norm's also times 1 / sqrt(epsilon);
# slopes of sigmoid, tanh and gelu go through 0 by 1 - y, 1 - y^2, P + x P').
CANCELLING = {
    "add": 20.0, "sum": 6.0, "add+relu": 6.0, "global_avg_pool": 6.0, "layer_norm": 60.0, "normalise": 6.0,
    "matrix_factorisation": 6.0, "softmax_cross_entropy": 6.0, "soft_cross_entropy": 60.0, "sigmoid": 1.0, "tanh": 1.0,
    "gelu": 1.0,
}  # fmt: skip


def length(case: Case) -> int:
    """Of the longest sum of forward or backward."""
    match case.op:
        case ops.GlobalAvgPool2d():
            return prod(case.shapes[0][2:])
        case ops.SoftmaxCrossEntropy() | ops.SoftCrossEntropy():
            return case.shapes[0][1]
        case ops.LayerNorm():
            return max(prod(case.shapes[0][-case.op.axes :]), prod(case.shapes[0][: -case.op.axes]))
        case ops.MatrixFactorisation():
            return max(case.op.factors, case.shapes[0][0])
    return 1


def close(case: Case, got: Array, expected: Array) -> None:
    assert got.shape == expected.shape
    scale = max(float(np.abs(expected).max()), CANCELLING.get(case.op.kind, 0.0))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * sqrt(length(case)) * scale)


def pair(
    case: Case, seed: int = 0, training: bool = True, layouts: tuple[str, ...] | None = None
) -> tuple[Bench, Bench]:
    """The case on the compiled kernel in float32, and on NumPy's in float64 with the same numbers."""
    mine = Bench(case, OPERATORS[type(case.op)], "float32", seed, training, layouts)
    theirs = Bench(case, REFERENCE[type(case.op)], "float64", seed, training)
    if isinstance(case.op, ops.Accuracy | ops.Maximum):
        for x in mine.x:  # equals
            np.round(x, out=x)
    share(mine, theirs)
    return mine, theirs


def share(mine: Bench, theirs: Bench) -> None:
    arrays = zip((*mine.x, mine.dy, *mine.w.values()), (*theirs.x, theirs.dy, *theirs.w.values()), strict=True)
    for array, wide in arrays:
        wide[...] = array


@pytest.mark.parametrize("op", RANDOM, ids=lambda op: op.kind)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1000), layout=st.sampled_from(LAYOUTS))
def test_it_is_numpys(op: type, data: st.DataObject, seed: int, layout: str) -> None:
    case = data.draw(RANDOM[op])
    layouts = tuple(layout if len(shape) == 4 else canonical(shape) for shape in case.shapes)
    for training in (False, True):
        if case.op.is_view(training):
            continue
        mine, theirs = pair(case, seed, training, layouts)
        close(case, mine.forward(), theirs.forward())
    if mine.kernel.backward is not None:
        mine.hide_what_backward_may_not_read()
        mine.backward()
        theirs.backward()
        for got, expected in zip(mine.dx, theirs.dx, strict=True):
            if got is not None:
                close(case, got, expected)
        for key, expected in theirs.dw.items():
            close(case, mine.dw[key], expected)


def test_every_kernel_is_tried() -> None:
    assert RANDOM.keys() | EXACT.keys() == OPERATORS.keys()


@pytest.mark.parametrize("case", [case for case in CASES if type(case.op) in OPERATORS], ids=name)
def test_it_is_a_command(case: Case) -> None:
    if case.op.is_view(True):
        return
    bench = Bench(case, OPERATORS[type(case.op)], "float32")
    assert isinstance(bench.kernel.forward(bench.call(backward=False)), Command)
    if bench.kernel.backward is not None:
        assert isinstance(bench.kernel.backward(bench.call(backward=True)), Command)


@pytest.mark.parametrize("features", [1, 2, 3, 4, 37, 4096])
@pytest.mark.parametrize("rate", [0.1, 0.5, 1 - 2**-31])
def test_dropouts_bits_are_numpys(rate: float, features: int) -> None:
    case = Case(ops.Dropout(rate), ((5, features), (5, 4)), (FLOAT, "uint32"), 1 << 32)
    mine = Bench(case, OPERATORS[ops.Dropout], "float32", seed=features)
    theirs = Bench(case, NUMPY[ops.Dropout], "float32", seed=features)
    np.testing.assert_array_equal(mine.forward(), theirs.forward())
    mine.backward()
    theirs.backward()
    np.testing.assert_array_equal(mine.dx[0], theirs.dx[0])


def formats(op: Any, given: tuple[str, ...], *shapes: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    asked = OPERATORS[type(op)].formats(op, Shapes(shapes, op.infer(*shapes), True, (0,)), given)
    return asked.x, asked.y


def test_a_layout_stays_where_it_can() -> None:
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


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, 1e4, -1e4, 1e-30, -1e-30, 3.0, -90.0, 89.0], np.float32)
ELEMENTWISE = [
    ops.Relu(), ops.ClippedRelu(6.0), ops.LeakyRelu(0.1), ops.LeakyRelu(1.5), ops.Sigmoid(), ops.Tanh(),
    ops.Gelu(False), ops.Gelu(True),
]  # fmt: skip


@pytest.mark.parametrize("op", ELEMENTWISE, ids=repr)
def test_numbers_that_are_none_and_large_ones(op: Any) -> None:
    mine, theirs = pair(Case(op, ((3, 11),)))
    mine.x[0][...] = SPECIAL
    share(mine, theirs)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(mine.forward(), theirs.forward(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "op", [Sum(), ops.Multiply(3), ops.Maximum(3), ops.Add((1.0, 2.0, 1.0))], ids=lambda op: op.kind
)
def test_nan_of_any_input_is_passed_on(op: Any) -> None:
    for place in range(3):
        mine, _ = pair(Case(op, ((2, 5),) * 3))
        mine.x[place][1, 2] = np.nan
        assert np.argwhere(np.isnan(mine.forward())).tolist() == [[1, 2]]


def loss(op: Any, logits: Any, label: Any) -> tuple[Array, Array]:
    """Losses and gradients for dy = 1."""
    logits, label = np.array(logits), np.array(label)
    bench = Bench(Case(op, (logits.shape, label.shape), (FLOAT, "int32")), OPERATORS[type(op)], "float32")
    bench.x[0][...], bench.x[1][...], bench.dy[...] = logits, label, 1
    bench.forward()
    bench.backward()
    assert bench.dx[0] is not None
    return bench.y, bench.dx[0]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("classes", [3, 40])
def test_a_diverged_loss_is_not_hidden(classes: int, bad: float, smoothing: float) -> None:
    for place in range(classes):
        logits = np.zeros((2, classes))
        logits[1, place] = bad
        losses, slopes = loss(ops.SoftmaxCrossEntropy(smoothing), logits, [1, 1])
        assert np.isfinite(losses).tolist() == [True, False]
        assert not np.isfinite(slopes[1]).any()


def test_losses_of_large_logits_and_of_infinite_ones() -> None:
    low = -np.inf
    logits = [[1e4, -1e4, 0], [1e4, -1e4, 0], [0, low, 0], [0, low, 0], [-3e4, -1e4, -2e4], [low, -1e4, low]]
    losses, _ = loss(ops.SoftmaxCrossEntropy(), logits, [0, 1, 0, 1, 2, 1])
    np.testing.assert_allclose(losses, [0, 2e4, np.log(2), np.inf, 1e4, 0], rtol=1e-7)


def test_an_ignored_sample_and_one_of_no_class() -> None:
    logits = [[np.nan, np.inf], [1.0, 1.0], [1.0, 2.0], [1.0, 2.0]]
    losses, slopes = loss(ops.SoftmaxCrossEntropy(0.1, -100), logits, [-100, 1, 2, -1])
    np.testing.assert_allclose(losses, [0, np.log(2), np.nan, np.nan], rtol=1e-6)
    assert slopes[0].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(slopes[1], [0.45, -0.45], rtol=1e-6)


def test_accuracy_takes_nan_for_ahead_of_all() -> None:
    logits = np.array([[1.0, 2, 3], [1, 2, 3], [9, 2, 1], [np.nan, 2, 3], [np.nan, 2, 3]])
    for k, hits in ((1, [0.0, 0, 0, 0, 0]), (2, [0.0, 0, 1, 0, 0]), (3, [0.0, 0, 1, 0, 1])):
        bench = Bench(Case(ops.Accuracy(k), ((5, 3), (5,)), (FLOAT, "int32")), OPERATORS[ops.Accuracy], "float32")
        bench.x[0][...], bench.x[1][...] = logits, [-100, 3, 1, 0, 1]
        assert bench.forward().tolist() == hits, k


def test_an_index_outside_a_table_is_that_of_its_nearest_row() -> None:
    case = Case(ops.MatrixFactorisation(3, 2, 1, INITIAL), ((2,),) * 3, ("int32", "int64", FLOAT))
    mine, theirs = pair(case)
    mine.x[0][...], mine.x[1][...] = [-1, 7], [5, -3]
    share(mine, theirs)
    np.testing.assert_allclose(mine.forward(), theirs.forward(), rtol=1e-5)
    mine.backward()
    theirs.backward()
    for key in ("user", "item"):
        np.testing.assert_allclose(mine.dw[key], theirs.dw[key], rtol=1e-5)


def test_add_relu_in_place() -> None:
    x0, x1 = np.array([1, -2, np.nan, 3], np.float32), np.array([-3, 3, 0, 1], np.float32)
    command(add_relu, x0, x1, x0, 4)()
    np.testing.assert_array_equal(x0, [0, 1, np.nan, 4])
