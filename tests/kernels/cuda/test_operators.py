"""mpibow's own CUDA kernels on the host, operator by operator, against NumPy's: in float64, some to the bit.

What is run are the launches that a device gets. All of them run with threads and blocks in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph.formats import Reorder
from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Call, Kernel, Run, Shapes
from mpibow.graph.steps import Sum
from mpibow.kernels.cuda.kernels import KERNELS, Launch
from mpibow.kernels.cuda.own import OWN
from mpibow.kernels.numpy import OPERATORS as NUMPY
from mpibow.ops.fused import AddRelu
from mpibow.ops.wide import (
    Beside,
    WideConcat,
    WideDropout,
    WideLayerNorm,
    WideLocalResponseNorm,
    WidePadChannels,
    WideSoftmax,
)
from tests.kernels.cases import CASES, INITIAL, Bench, Case, name
from tests.kernels.cuda.host import needs_compiler, prepared, run_all

pytestmark = needs_compiler
prepare = prepared(*sorted(set(KERNELS.values())))

CUDNN = (ops.BatchNorm, ops.Conv2d, ops.Dense)  # what cuDNN computes
VIEWS = (ops.Flatten,)
# Of max |reference|: float32 in other orders and with other functions; half a unit of the last place a few times over.
UNIT = {"float32": 3e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
LOOSER = {
    "soft_cross_entropy": 10,
    "local_response_norm": 3,
    "wide_local_response_norm": 3,
}  # differences of sums, products of powers
WIDE_INPUTS = {ops.SoftCrossEntropy: (1,), ops.Mix: (1,), ops.MatrixFactorisation: (2,)}  # float32 in every precision
WIDE_OUTPUTS = (
    ops.Accuracy, ops.MatrixFactorisation, ops.MixShares, ops.OneHot, ops.SoftCrossEntropy, ops.SoftmaxCrossEntropy
)  # fmt: skip


def added(call: Call) -> Run:
    return lambda: np.copyto(call.y, np.maximum(call.x[0] + call.x[1], 0))


def added_back(call: Call) -> Run:
    def run() -> None:
        for dx in call.dx:
            np.copyto(dx, call.dy * (call.y > 0))

    return run


def reordered(call: Call) -> Run:
    return lambda: np.copyto(call.y, call.x[0])


def reordered_back(call: Call) -> Run:
    return lambda: np.copyto(call.dx[0], call.dy)


def by_replica(x: Array, k: int) -> Array:
    """(n, k c, ...) as (n, k, c, ...)."""
    return x.reshape(x.shape[0], k, -1, *x.shape[2:])


def wide_concatenated(call: Call) -> Run:
    k = call.op.replicas
    return lambda: np.copyto(by_replica(call.y, k), np.concatenate([by_replica(x, k) for x in call.x], axis=2))


def wide_concatenated_back(call: Call) -> Run:
    k, ends = call.op.replicas, np.cumsum([x.shape[1] // call.op.replicas for x in call.x])[:-1]

    def run() -> None:
        for dx, part in zip(call.dx, np.split(by_replica(call.dy, k), ends, axis=2), strict=True):
            np.copyto(by_replica(dx, k), part)

    return run


def wide_padded(call: Call) -> Run:
    k = call.op.replicas

    def run() -> None:
        call.y[...] = 0
        by_replica(call.y, k)[:, :, : call.x[0].shape[1] // k] = by_replica(call.x[0], k)

    return run


def wide_padded_back(call: Call) -> Run:
    (dx,), k = call.dx, call.op.replicas
    return lambda: np.copyto(by_replica(dx, k), by_replica(call.dy, k)[:, :, : dx.shape[1] // k])


def apart(own: type, settings: Callable[[Any], Any]) -> Kernel:
    """What an operator without weights does of k replicas: NumPy's kernel of one, on k times as many samples."""

    def samples(shape: tuple[int, ...], k: int) -> tuple[int, ...]:
        return (k * shape[0], shape[1] // k, *shape[2:])

    def shapes_of(op: Any, shapes: Shapes) -> Shapes:
        x = tuple(samples(shape, op.replicas) for shape in shapes.x)
        return replace(shapes, x=x, y=samples(shapes.y, op.replicas))

    def one(call: Call) -> Call:
        def seen(array: Any) -> Any:
            return None if array is None else array.reshape(samples(array.shape, call.op.replicas))

        return replace(
            call, op=settings(call.op), x=tuple(map(seen, call.x)), y=seen(call.y), dy=seen(call.dy),
            dx=tuple(map(seen, call.dx)), shapes=shapes_of(call.op, call.shapes),
        )  # fmt: skip

    kernel = NUMPY[own]
    back = kernel.backward
    assert back is not None
    return Kernel(
        lambda call: kernel.forward(one(call)),
        lambda call: back(one(call)),
        lambda op, shapes: kernel.buffers(settings(op), shapes_of(op, shapes)),
    )


def normalised(call: Call) -> tuple[Array, Array, Array, tuple[int, ...]]:
    """Of every replica (n, k, c, ...): the normalised x, 1 / deviation, the weights as they go with it, the axes."""
    op, x = call.op, by_replica(call.x[0], call.op.replicas)
    axes = tuple(range(x.ndim - op.axes, x.ndim))
    inverse = 1 / np.sqrt(x.var(axis=axes, keepdims=True) + op.epsilon)
    weights = of_replicas(call.w["weight"], x, op)
    return (x - x.mean(axis=axes, keepdims=True)) * inverse, inverse, weights, axes


def of_replicas(weight: Array, x: Array, op: Any) -> Array:
    return weight.reshape(op.replicas, *(1,) * (x.ndim - 2 - op.axes), *x.shape[x.ndim - op.axes :])


def wide_layer_norm(call: Call) -> Run:
    def run() -> None:
        h, _, weight, _ = normalised(call)
        np.copyto(by_replica(call.y, call.op.replicas), h * weight + of_replicas(call.w["bias"], h, call.op))

    return run


def wide_layer_norm_back(call: Call) -> Run:
    def run() -> None:
        (h, inverse, weight, axes), dy = normalised(call), by_replica(call.dy, call.op.replicas)
        others = tuple(axis for axis in range(h.ndim) if axis not in (1, *axes))
        for key, part in (("weight", dy * h), ("bias", dy)):
            call.dw[key][...] = part.sum(axis=others).reshape(call.dw[key].shape)
        g = dy * weight
        back = g - g.mean(axis=axes, keepdims=True) - h * (g * h).mean(axis=axes, keepdims=True)
        if (dx := call.dx[0]) is not None:
            by_replica(dx, call.op.replicas)[...] = back * inverse

    return run


REFERENCE: dict[type, Kernel] = {
    **NUMPY,
    Beside: NUMPY[ops.Concat],
    WideConcat: Kernel(wide_concatenated, wide_concatenated_back),
    WideDropout: apart(ops.Dropout, lambda op: ops.Dropout(op.rate)),
    WideLayerNorm: Kernel(wide_layer_norm, wide_layer_norm_back),
    WideLocalResponseNorm: apart(
        ops.LocalResponseNorm, lambda op: ops.LocalResponseNorm(op.size, op.alpha, op.beta, op.k)
    ),
    WideSoftmax: apart(ops.Softmax, lambda op: ops.Softmax(op.axis)),
    WidePadChannels: Kernel(wide_padded, wide_padded_back),
    AddRelu: Kernel(added, added_back),
    Reorder: Kernel(reordered, reordered_back),
}


def on_host(op: type, backwards: bool) -> Kernel:
    def bind(launches: Sequence[Launch]) -> Run:
        return lambda: run_all(launches, backwards)

    return OWN[op].bound(bind)


def bench(case: Case, dtype: str, given: tuple[str, ...] | None, backwards: bool, training: bool = True) -> Bench:
    """Of the kernel on the host; weights, and what the module's tables say, are float32."""
    made = Bench(case, on_host(type(case.op), backwards), dtype, training=training, given=given)
    wide = WIDE_INPUTS.get(type(case.op), ())
    made.x = tuple(x.astype("float32") if i in wide else x for i, x in enumerate(made.x))
    if isinstance(case.op, WIDE_OUTPUTS):
        made.y, made.dy = made.y.astype("float32"), made.dy.astype("float32")
    made.w = {key: array.astype("float32") for key, array in made.w.items()}
    made.dw = {key: array.astype("float32") for key, array in made.dw.items()}
    return made


def widened(array: Array, dtype: str) -> Array:
    return array if array.dtype.kind in "iub" else array.astype(dtype)


def twin(fast: Bench, dtype: str, training: bool = True) -> Bench:
    """The reference with the same numbers."""
    slow = Bench(fast.case, REFERENCE[type(fast.case.op)], dtype, training=training)
    slow.x = tuple(widened(x, dtype) for x in fast.x)
    slow.w = {key: array.astype(dtype) for key, array in fast.w.items()}
    slow.dy = fast.dy.astype(dtype)
    return slow


def compare(
    case: Case, dtype: str, given: tuple[str, ...] | None, same: Callable[[Any, Any], None], twins: str
) -> None:
    """Forward and backward, in both orders of threads; `same(got, expected)`."""
    trains = OWN[type(case.op)].backward is not None and case.op.differentiable is not None
    seen = []
    for backwards in (False, True):
        fast = bench(case, dtype, given, backwards)
        slow = twin(fast, twins)
        results = [(fast.forward(), slow.forward())]
        if trains:
            fast.hide_what_backward_may_not_read()
            fast.backward()
            slow.backward()
            results += [(mine, its) for mine, its in zip(fast.dx, slow.dx, strict=True) if its is not None]
            results += [(fast.dw[key], slow.dw[key]) for key in fast.dw]
        for got, expected in results:
            same(got, expected)
        seen.append([got for got, _ in results])
    for first, second in zip(*seen, strict=True):
        np.testing.assert_array_equal(first, second)


def close(dtype: str, kind: str = "") -> Callable[[Any, Any], None]:
    def same(got: Any, expected: Any) -> None:
        bound = (
            UNIT[dtype]
            * LOOSER.get(kind, 1)
            * max(np.abs(np.nan_to_num(expected.astype(np.float64))).max(initial=0.0), 1e-30)
        )
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=0, atol=bound)

    return same


def check(case: Case, dtype: str, given: tuple[str, ...] | None = None) -> None:
    compare(case, dtype, given, close(dtype, case.op.kind), "float64")


MORE = [
    Case(AddRelu(), ((3, 4), (3, 4))),
    Case(Reorder("abcd", "acdb"), ((2, 3, 4, 5),)),
    Case(Reorder("acdb", "abcd"), ((2, 40, 5, 9),), id="back, more than a tile"),
    Case(Sum(), ((2, 3),) * 9, (FLOAT,) * 9, id="nine"),
    Case(ops.Add((2.0, 1.0, -0.5, 3.0, 1.0, 0.25)), ((3, 5),) * 6, id="six with coefficients"),
    Case(ops.Maximum(5), ((3, 5),) * 5, id="five"),
    Case(ops.Normalise((0.5,), (2.0,)), ((3, 1, 5),), id="floats"),
    Case(ops.MaxPool2d((3, 3), (2, 2), (1, 1)), ((2, 16, 5, 4),), id="packs"),
    Case(ops.AvgPool2d((3, 2), (2, 1), (1, 1)), ((2, 16, 5, 4),), id="packs"),
    Case(ops.AdaptiveAvgPool2d((2, 3)), ((2, 16, 5, 4),), id="packs"),
    Case(ops.Concat(2, 1), ((2, 8, 2, 2), (2, 24, 2, 2)), id="packs"),
    Case(ops.PadChannels(24), ((2, 16, 3),), id="packs"),
    Case(Beside(3, 1), ((4, 1), (4, 1), (4, 1)), (FLOAT,) * 3),
    Case(WideConcat(2, 1, replicas=3), ((2, 6, 2, 3), (2, 9, 2, 3))),
    Case(WideConcat(2, 1, replicas=2), ((3, 4), (3, 16)), id="features"),
    Case(WideDropout(0.3, replicas=3), ((2, 27), (2, 12)), (FLOAT, "uint32"), 1 << 32, id="features"),
    Case(WideDropout(0.5, replicas=2), ((3, 10, 3, 2), (3, 8)), (FLOAT, "uint32"), 1 << 32),
    Case(WideLayerNorm(1, 1e-5, replicas=3), ((4, 15),), id="features"),
    Case(WideLayerNorm(1, 1e-5, replicas=2), ((3, 6, 2, 5),), id="positions"),
    Case(WideLayerNorm(3, 1e-2, replicas=2), ((3, 8, 2, 3),), id="images"),
    Case(WideLocalResponseNorm(5, 0.5, 0.75, 1.0, replicas=2), ((2, 14, 2, 3),)),
    Case(WideSoftmax(1, replicas=3), ((4, 12),), id="features"),
    Case(WideSoftmax(1, replicas=2), ((2, 6, 2, 3),)),
    Case(WidePadChannels(15, replicas=3), ((2, 6, 2, 2),)),
    Case(WidePadChannels(32, replicas=2), ((2, 16, 3),), id="packs"),
    Case(ops.SoftmaxCrossEntropy(0.1, -(1 << 40)), ((3, 70), (3,)), (FLOAT, "int64"), 70, id="more than a warp"),
    Case(ops.Accuracy(2), ((6, 40), (6,)), (FLOAT, "int64"), 40, id="int64"),
    Case(ops.OneHot(3), ((6,),), ("int64",), id="int64"),
    Case(ops.LayerNorm(1, 1e-5), ((9, 70),), id="more than a warp"),
    Case(ops.MatrixFactorisation(2, 2, 3, INITIAL), ((9,),) * 3, ("int32", "int64", FLOAT), 4, id="no such rows"),
    *[
        Case(ops.MatrixFactorisation(4, 5, 40, INITIAL), ((7,),) * 3, (i, j, FLOAT), id=f"{i} and {j}")
        for i in ("int32", "int64")
        for j in ("int32", "int64")
    ],
]
MINE = [case for case in [*CASES, *MORE] if not isinstance(case.op, CUDNN + VIEWS)]
# What no operator launches: a test in test_flat, test_direct or test_gather each.
DIRECT = {kernel for kernel, source in KERNELS.items() if source == "flat.cu"} | {
    kernel for kernel in KERNELS if kernel.split("<")[0] in ("cast", "fill", "column_sums", "gather")
}


def layouts(case: Case) -> tuple[tuple[str, ...] | None, ...]:
    """Canonical, and where there are images channels last."""
    images = len(case.shapes[0]) == 4 and not isinstance(case.op, Reorder)
    return (None, ("acdb",) * len(case.shapes)) if images else (None,)


def test_every_operator_is_there() -> None:
    """Of NumPy's table, cuDNN computes some; of this table, all are checked."""
    assert set(NUMPY) - set(OWN) == set(CUDNN)
    assert {type(case.op) for case in MINE} == set(OWN)


def test_every_kernel_is_launched_by_some_case() -> None:
    launched = set()

    def noted(launches: Sequence[Launch]) -> Run:
        launched.update(launch.kernel for launch in launches)
        return lambda: None

    for case in MINE:
        for dtype in UNIT:
            for tags in layouts(case):
                made = bench(case, dtype, tags, False)
                own = OWN[type(case.op)].bound(noted)
                own.forward(made.call(backward=False))
                if own.backward is not None and case.op.differentiable is not None:
                    own.backward(made.call(backward=True))
    assert launched | DIRECT == set(KERNELS)
    assert not launched & {kernel for kernel in DIRECT if KERNELS[kernel] == "flat.cu"}


@pytest.mark.parametrize("dtype", list(UNIT))
@pytest.mark.parametrize("case", MINE, ids=name)
def test_cases(case: Case, dtype: str) -> None:
    for tags in layouts(case):
        check(case, dtype, tags)


@pytest.mark.parametrize("case", MINE, ids=name)
def test_evaluation(case: Case) -> None:
    if isinstance(case.op, ops.Dropout):  # a view there, of several replicas as well
        return
    fast = bench(case, "float32", None, False, training=False)
    close("float32", case.op.kind)(fast.forward(), twin(fast, "float64", training=False).forward())


# Shapes at random.

SIDES, COUNTS = st.integers(1, 12), st.integers(1, 5)
CHANNELS = st.sampled_from([1, 2, 3, 4, 8, 12])
IMAGES = st.tuples(st.integers(1, 3), CHANNELS, SIDES, SIDES)
ROWS = st.tuples(COUNTS, st.integers(1, 80))
ANY = st.one_of(IMAGES, ROWS, st.tuples(st.integers(1, 2), st.integers(1, 3000)))
PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 4))


def one(op: Any, shapes: st.SearchStrategy[Any] = ANY) -> st.SearchStrategy[Case]:
    return shapes.map(lambda shape: Case(op, (shape,)))


def same(make: Callable[[int], Any]) -> st.SearchStrategy[Case]:
    """Of several inputs of one shape."""
    return st.builds(lambda n, shape: Case(make(n), (shape,) * n), st.integers(2, 6), ANY)


def drawn(make: Callable[[Any, Any], Any], *dtypes: str) -> st.SearchStrategy[Case]:
    """Of images (uint8 or floats) and counters; make(draw, shape)."""

    @st.composite
    def cases(draw: Any) -> Case:
        shape = draw(IMAGES)
        dtype = draw(st.sampled_from(dtypes))
        return Case(make(draw, shape), (shape, (shape[0], 4)), (dtype, "uint32"), 1 << 32)

    return cases()


def window(draw: Any, shape: Any) -> ops.Augment:
    crop = draw(st.integers(1, shape[2])), draw(st.integers(1, shape[3]))
    return ops.Augment(draw(st.integers(0, min(crop) - 1)), crop, draw(st.booleans()))


def shade(draw: Any, shape: Any) -> ops.Jitter:
    spreads = st.sampled_from([0.0, 0.1, 0.4, 1.0, 2.5])
    return ops.Jitter(draw(spreads), draw(spreads), draw(spreads) if shape[1] == 3 else 0.0, 255.0)


@st.composite
def pools(draw: Any) -> Case:
    kernel, padding = draw(PAIRS), draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    settings = kernel, draw(PAIRS), padding, draw(st.booleans())
    op = draw(st.sampled_from([ops.MaxPool2d(*settings), ops.AvgPool2d(*settings, draw(st.booleans()))]))
    return Case(op, (draw(IMAGES),))


@st.composite
def adaptives(draw: Any) -> Case:
    return Case(ops.AdaptiveAvgPool2d(draw(PAIRS)), (draw(IMAGES),))


@st.composite
def concats(draw: Any) -> Case:
    first = draw(ANY)
    axis, count = draw(st.integers(0, len(first) - 1)), draw(st.integers(1, 4))
    extent = st.sampled_from([8, 16]) if draw(st.booleans()) else st.integers(1, 9)
    shapes = [(*first[:axis], draw(extent), *first[axis + 1 :]) for _ in range(count)]
    return Case(ops.Concat(count, axis), tuple(shapes))


@st.composite
def losses(draw: Any) -> Case:
    (n, classes), ignore = draw(ROWS), draw(st.sampled_from([None, 0, -100]))
    dtype = draw(st.sampled_from(["int32", "int64"]))
    op = ops.SoftmaxCrossEntropy(draw(st.sampled_from([0.0, 0.1])), ignore)
    return Case(op, ((n, classes), (n,)), (FLOAT, dtype), classes)


@st.composite
def dropped_apart(draw: Any) -> Case:
    (n, c, *rest), k = draw(IMAGES), draw(st.integers(1, 4))
    return Case(WideDropout(0.4, replicas=k), ((n, k * c, *rest), (n, 4 * k)), (FLOAT, "uint32"), 1 << 32)


COUNTED = ROWS.map(lambda shape: (shape, (shape[0], 4)))
EXACT = [  # NumPy's bits in float32
    one(ops.Relu()),
    one(ops.LeakyRelu(0.1)),
    one(ops.ClippedRelu(0.7)),
    same(lambda n: ops.Add((1.0, 0.5, -2.0, 3.0, 1.0, 1.5)[:n])),
    same(ops.Multiply),
    same(ops.Maximum),
    concats(),
    st.builds(lambda shape, more: Case(ops.PadChannels(shape[1] + more), (shape,)), ANY, st.integers(0, 9)),
    one(Reorder("abcd", "acdb"), IMAGES),
    drawn(lambda draw, shape: ops.Dropout(draw(st.sampled_from([0.1, 0.5, 0.9]))), FLOAT),
    dropped_apart(),
    drawn(window, FLOAT, "uint8"),
    drawn(lambda draw, shape: ops.Cutout(draw(st.integers(1, 15))), FLOAT),
    drawn(shade, "uint8"),
    one(ops.CentreCrop((1, 1)), IMAGES),
    ROWS.map(lambda shape: Case(ops.Mix(), (shape, shape[:1]))),
    COUNTS.map(lambda n: Case(ops.MixShares(0.3), ((n, 4),), ("uint32",), 1 << 32)),
    COUNTS.map(lambda n: Case(ops.OneHot(4), ((n,),), ("int32",), 6)),
    IMAGES.map(lambda x: Case(ops.Normalise((0.4,) * x[1], (3.0,) * x[1]), (x,), ("uint8",), 256)),
]
CLOSE = [
    one(ops.Gelu(False)),
    one(ops.Gelu(True)),
    one(ops.Sigmoid()),
    one(ops.Tanh()),
    pools(),
    adaptives(),
    one(ops.GlobalAvgPool2d(), IMAGES),
    losses(),
    ROWS.map(lambda shape: Case(ops.SoftCrossEntropy(0.2), (shape, shape))),
    one(ops.Softmax(1)),
    one(ops.LayerNorm(1, 1e-2)),
    one(ops.LocalResponseNorm(5, 0.5, 0.75, 1.0)),
]
LAYOUTS = st.sampled_from(["abcd", "acdb"])


def given_in(case: Case, tag: str) -> tuple[str, ...] | None:
    return None if len(case.shapes[0]) != 4 or isinstance(case.op, Reorder) else (tag,) * len(case.shapes)


@given(st.one_of(EXACT), LAYOUTS)
@settings(deadline=None, max_examples=80)
def test_the_same_bits_as_numpy(case: Case, tag: str) -> None:
    compare(case, "float32", given_in(case, tag), np.testing.assert_array_equal, "float32")


@given(st.one_of(CLOSE), LAYOUTS)
@settings(deadline=None, max_examples=60)
def test_random_shapes(case: Case, tag: str) -> None:
    try:
        case.op.infer(*case.shapes)
    except ShapeError:
        return
    check(case, "float32", given_in(case, tag))


# What NaN and infinity do, and what is no class.


def forward_of(case: Case, **x: Any) -> Any:
    fast = bench(case, "float32", None, False)
    for i, array in x.items():
        fast.x[int(i[1:])][...] = array
    return fast.forward()


@pytest.mark.parametrize(
    "op", [ops.Relu(), ops.LeakyRelu(0.1), ops.ClippedRelu(1.0), ops.Gelu(False), ops.Gelu(True), ops.Sigmoid()]
)
def test_nan_is_passed_on(op: Any) -> None:
    y = forward_of(Case(op, ((1, 6),)), x0=[[np.nan, 1, -1, 2, 0, np.nan]])
    assert np.isnan(y).tolist() == [[True, False, False, False, False, True]]


def test_nan_is_the_largest() -> None:
    y = forward_of(Case(ops.Maximum(3), ((1, 3),) * 3), x0=[[np.nan, 1, 1]], x1=[[0, np.nan, 0]], x2=[[5, 5, 5]])
    assert np.isnan(y).tolist() == [[True, True, False]]
    image = np.array([[[[1, np.nan], [3, 4]]]])
    assert np.isnan(forward_of(Case(ops.MaxPool2d((2, 2), (2, 2)), ((1, 1, 2, 2),)), x0=image)).all()


def test_losses_hide_nothing() -> None:
    """A label that is no class, NaN, and infinity at the top give NaN; one that is ignored gives 0."""
    case = Case(ops.SoftmaxCrossEntropy(0.0, -1), ((6, 2), (6,)), (FLOAT, "int32"))
    logits = [[1, 1], [1, 1], [1, 1], [np.nan, 1], [np.inf, 1], [-np.inf, 1]]
    y = forward_of(case, x0=logits, x1=[-1, 2, -2, 1, 1, 1])
    np.testing.assert_array_equal(y, [0, np.nan, np.nan, np.nan, np.nan, 0])


def test_what_is_among_the_best() -> None:
    """Equals count in their order; NaN is ahead of all, and is never right itself."""
    case = Case(ops.Accuracy(2), ((6, 3), (6,)), (FLOAT, "int32"))
    logits = [[1, 1, 1], [1, 1, 1], [3, 2, 1], [np.nan, np.nan, 9], [np.nan, 1, 1], [1, 2, 3]]
    y = forward_of(case, x0=logits, x1=[1, 2, 1, 2, 0, 3])
    assert y.tolist() == [1, 0, 1, 0, 0, 0]


def test_a_ceiling_that_half_precision_rounds() -> None:
    """0.7 is 0.69921875 in bfloat16: what is clipped to that must have no gradient."""
    fast = bench(Case(ops.ClippedRelu(0.7), ((1, 3),)), "bfloat16", None, False)
    fast.x[0][...] = [[0.5, 0.7, 9.0]]
    fast.dy[...] = 1
    fast.forward()
    fast.backward()
    assert fast.dx[0] is not None
    assert fast.dx[0].astype("float32").tolist() == [[1, 0, 0]]


def test_reorders_that_are_no_transpose() -> None:
    with pytest.raises(ShapeError, match=r"^CUDA kernels reorder by swapping two runs of axes, got abcd to dcba$"):
        OWN[Reorder].bound(lambda launches: lambda: None).forward(
            Bench(Case(Reorder("abcd", "dcba"), ((1, 2, 3, 4),)), REFERENCE[Reorder], "float32").call(backward=False)
        )
