"""Every operator at random: the cases that each kernel set is compared on with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from hypothesis import strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph.formats import Reorder, canonical
from mpibow.graph.graph import FLOAT
from mpibow.graph.steps import Sum
from mpibow.ops import wide
from mpibow.ops.fused import AddRelu, ConvNormAddRelu, ConvRelu, NormAddRelu
from tests.kernels.cases import INITIAL, Alone, Case

Cases = st.SearchStrategy[Case]
LAYOUTS = ("abcd", "acdb", "aBcd16b", "aBcd8b")  # that an image may come in
WORD = 1 << 32

sides = st.integers(1, 9)
channels = st.one_of(st.integers(1, 5), st.sampled_from([8, 15, 16, 17, 32, 40]))
counts, replicas = st.integers(1, 6), st.integers(1, 4)
pairs = st.tuples(*[st.integers(1, 4)] * 2)
images = st.tuples(st.integers(1, 3), channels, sides, sides)
rows = st.tuples(st.integers(1, 9), st.integers(1, 70))
long = st.tuples(st.integers(1, 2), st.integers(1, 3000))
tensors = st.one_of(images, rows, long, st.tuples(counts, st.integers(1, 9), st.integers(1, 12)))
smoothings = st.sampled_from([0.0, 0.1, 0.5])
labels = st.sampled_from(["int32", "int64"])
pixels = st.sampled_from(["uint8", FLOAT])


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[ops.Conv2d, tuple[int, ...]]:
    groups = draw(st.sampled_from([1, 1, 1, 2, 4, 16, 32]))
    each = st.integers(1, 2) if groups > 4 else channels
    c, o = draw(each) * groups, draw(each) * groups
    kernel = draw(st.tuples(*[st.integers(1, 5)] * 2))
    stride, dilation = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.tuples(*[st.integers(1, 2)] * 2))
    padding = draw(st.tuples(st.integers(0, kernel[0] // 2 + 1), st.integers(0, kernel[1] // 2 + 1)))
    op = ops.Conv2d(o, kernel, stride, padding, draw(st.booleans()), INITIAL, groups, dilation)
    return op, (draw(st.integers(1, 5)), c, draw(sides) + 2, draw(sides) + 2)


def possible(found: tuple[Any, tuple[int, ...]]) -> bool:
    """Whether the operator takes such images: some windows are larger."""
    try:
        return bool(found[0].infer(found[1]))
    except ShapeError:
        return False


CONVOLUTIONS = convolutions().filter(possible)


@st.composite
def evaluated(draw: st.DrawFn) -> Case:
    op, shape = draw(CONVOLUTIONS.filter(lambda found: found[0].groups == 1))
    added = draw(st.booleans())
    shapes = (shape, op.infer(shape)) if added else (shape,)
    return Case(Alone(op, ops.BatchNorm(1e-3, 0.1), added, draw(st.booleans())), shapes)


@st.composite
def pools(draw: st.DrawFn, largest: bool) -> Case:
    kernel, stride = draw(pairs), draw(pairs)
    padding = draw(st.tuples(st.integers(0, kernel[0] // 2), st.integers(0, kernel[1] // 2)))
    window = kernel, stride, padding, draw(st.booleans())
    op = ops.MaxPool2d(*window) if largest else ops.AvgPool2d(*window, draw(st.booleans()))
    return Case(op, ((draw(st.integers(1, 3)), draw(channels), draw(sides) + 3, draw(sides) + 3),))


def one(op: Any, shapes: st.SearchStrategy[Any] = tensors) -> Cases:
    return shapes.map(lambda shape: Case(op, (shape,)))


def several(make: Callable[[int], Any], least: int = 2) -> Cases:
    """Of inputs of one shape."""
    return st.builds(lambda n, shape: Case(make(n), (shape,) * n), st.integers(least, 6), tensors)


def counted(make: Callable[[Any, Any], Any], *dtypes: str) -> Cases:
    """Of images and a counter a sample; make(draw, shape)."""

    @st.composite
    def cases(draw: st.DrawFn) -> Case:
        side = st.one_of(st.integers(1, 12), st.integers(1, 40))
        shape = (draw(counts), draw(st.integers(1, 4)), draw(side), draw(side))
        return Case(make(draw, shape), (shape, (shape[0], 4)), (draw(st.sampled_from(dtypes)), "uint32"), WORD)

    return cases()


def window(draw: Any, shape: Any) -> ops.Augment:
    crop = draw(st.integers(1, shape[2])), draw(st.integers(1, shape[3]))
    return ops.Augment(draw(st.integers(0, min(crop) - 1)), crop, draw(st.booleans()))


def shade(draw: Any, shape: Any) -> ops.Jitter:
    spreads = st.sampled_from([0.0, 0.1, 0.4, 1.0, 2.5])
    return ops.Jitter(draw(spreads), draw(spreads), draw(spreads) if shape[1] == 3 else 0.0, 255.0)


@st.composite
def crops(draw: st.DrawFn) -> Case:
    shape = draw(images)
    op = ops.CentreCrop((draw(st.integers(1, shape[2])), draw(st.integers(1, shape[3]))))
    return Case(op, (shape,), (draw(pixels),), 256)


@st.composite
def adds(draw: st.DrawFn) -> Case:
    coefficients = draw(st.lists(st.sampled_from([1.0, -1.0, 0.5, 3.0]), min_size=2, max_size=6))
    return Case(ops.Add(tuple(coefficients)), (draw(tensors),) * len(coefficients))


@st.composite
def concats(draw: st.DrawFn, kind: Any = ops.Concat) -> Case:
    first = draw(tensors)
    axis, count = draw(st.integers(0, len(first) - 1)), draw(st.integers(1, 4))
    extent = st.sampled_from([16, 32, 8]) if draw(st.booleans()) else st.integers(1, 20)
    shapes = [(*first[:axis], draw(extent), *first[axis + 1 :]) for _ in range(count)]
    return Case(
        kind(count, axis), tuple(shapes), (FLOAT if kind is ops.Concat else draw(st.sampled_from([FLOAT, "int32"])),)
    )


@st.composite
def losses(draw: st.DrawFn) -> Case:
    n, classes = draw(rows)
    ignore = draw(st.sampled_from([None, 0, -100, classes]))
    op = ops.SoftmaxCrossEntropy(draw(smoothings), ignore)
    return Case(op, ((n, classes), (n,)), (FLOAT, draw(labels)), classes + (ignore == classes))


@st.composite
def accuracies(draw: st.DrawFn) -> Case:
    n, classes = draw(rows)
    op = ops.Accuracy(draw(st.integers(1, classes)))
    return Case(op, ((n, classes), (n,)), (FLOAT, draw(labels)), classes + 1)  # one more is no class


@st.composite
def batch_norms(draw: st.DrawFn, make: Callable[[ops.BatchNorm], Any] = lambda norm: norm, inputs: int = 1) -> Case:
    """Of more than three values a channel: the variance of two may be next to nothing."""
    features = st.tuples(st.integers(4, 12), channels)
    shapes = st.one_of(images, features).filter(lambda x: prod(x) > 3 * x[1])
    return Case(make(ops.BatchNorm(1e-3, draw(st.sampled_from([0.1, 0.9])))), (draw(shapes),) * inputs)


def layer_norm(axes: int, draw: st.DrawFn) -> ops.LayerNorm:
    return ops.LayerNorm(draw(st.integers(1, axes)), draw(st.sampled_from([1e-2, 1.0])))


@st.composite
def layer_norms(draw: st.DrawFn) -> Case:
    shape = draw(tensors)
    return Case(layer_norm(len(shape) - 1, draw), (shape,))


@st.composite
def responses(draw: st.DrawFn) -> ops.LocalResponseNorm:
    return ops.LocalResponseNorm(draw(st.integers(1, 9)), draw(st.sampled_from([0.1, 0.5])), 0.75, 2.0)


@st.composite
def softmaxes(draw: st.DrawFn) -> Case:
    shape = draw(st.one_of(rows, images, st.tuples(counts, st.integers(1, 40), st.integers(1, 4))))
    return Case(ops.Softmax(draw(st.integers(0, len(shape) - 1))), (shape,))


@st.composite
def factorisations(draw: st.DrawFn) -> Case:
    n, users, items = draw(st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(1, 9)))
    op = ops.MatrixFactorisation(users, items, draw(st.integers(1, 40)), INITIAL)
    return Case(op, ((n,),) * 3, (draw(labels), draw(labels), FLOAT), min(users, items))


@st.composite
def normalisations(draw: st.DrawFn) -> Case:
    shape = draw(tensors)
    means = draw(st.sampled_from([shape[1], prod(shape[1:])]))
    spread, deviations = [-3 + 123 * i / means for i in range(means)], [1 + 59 * i / shape[1] for i in range(shape[1])]
    return Case(ops.Normalise(tuple(spread), tuple(deviations)), (shape,), (draw(pixels),), 256)


RANDOM: dict[type, Cases] = {
    AddRelu: tensors.map(lambda shape: Case(AddRelu(), (shape,) * 2)),
    ConvNormAddRelu: evaluated(),
    ConvRelu: CONVOLUTIONS.map(lambda found: Case(ConvRelu(found[0]), found[1:])),
    NormAddRelu: st.one_of(
        batch_norms(lambda norm: NormAddRelu(norm, False)), batch_norms(lambda norm: NormAddRelu(norm, True), 2)
    ),
    Sum: several(lambda n: Sum()),
    ops.Accuracy: accuracies(),
    ops.AdaptiveAvgPool2d: pairs.flatmap(lambda size: one(ops.AdaptiveAvgPool2d(size), images)),
    ops.Add: adds(),
    ops.Augment: counted(window, "uint8", FLOAT),
    ops.AvgPool2d: pools(False),
    ops.BatchNorm: batch_norms(),
    ops.CentreCrop: crops(),
    ops.ClippedRelu: one(ops.ClippedRelu(0.7)),
    ops.Concat: concats(),
    ops.Conv2d: CONVOLUTIONS.map(lambda found: Case(found[0], found[1:])),
    ops.Cutout: counted(lambda draw, shape: ops.Cutout(draw(st.integers(1, 50))), FLOAT),
    ops.Dense: st.builds(
        lambda units, bias, shape: Case(ops.Dense(units, bias, INITIAL), (shape,)),
        st.integers(1, 70), st.booleans(), st.tuples(st.integers(1, 20), st.integers(1, 70)),
    ),
    ops.Dropout: st.builds(
        lambda rate, shape: Case(ops.Dropout(rate), (shape, (shape[0], 4)), (FLOAT, "uint32"), WORD),
        st.sampled_from([0.1, 0.5, 0.999]), tensors,
    ),
    ops.Gelu: st.booleans().flatmap(lambda tanh: one(ops.Gelu(tanh))),
    ops.GlobalAvgPool2d: one(ops.GlobalAvgPool2d(), images),
    ops.Jitter: counted(shade, "uint8"),
    ops.LayerNorm: layer_norms(),
    ops.LeakyRelu: st.sampled_from([0.0, 0.1, 1.5]).flatmap(lambda slope: one(ops.LeakyRelu(slope))),
    ops.LocalResponseNorm: responses().flatmap(one),
    ops.MatrixFactorisation: factorisations(),
    ops.MaxPool2d: pools(True),
    ops.Maximum: several(ops.Maximum),
    ops.Mix: tensors.map(lambda shape: Case(ops.Mix(), (shape, shape[:1]))),
    ops.MixShares: st.builds(
        lambda alpha, n: Case(ops.MixShares(alpha), ((n, 4),), ("uint32",), WORD),
        st.sampled_from([0.1, 0.2, 1.0, 3.0]), st.integers(1, 99),
    ),
    ops.Multiply: several(ops.Multiply),
    ops.Normalise: normalisations(),
    ops.OneHot: st.builds(
        lambda classes, n, dtype: Case(ops.OneHot(classes), ((n,),), (dtype,), classes + 4),
        st.integers(1, 70), st.integers(1, 9), labels,
    ),
    ops.PadChannels: st.builds(
        lambda more, shape: Case(ops.PadChannels(shape[1] + more), (shape,)), st.sampled_from([0, 1, 16, 32]), tensors
    ),
    ops.Relu: one(ops.Relu()),
    ops.Sigmoid: one(ops.Sigmoid()),
    ops.SoftCrossEntropy: st.builds(
        lambda smoothing, shape: Case(ops.SoftCrossEntropy(smoothing), (shape,) * 2), smoothings, rows
    ),
    ops.Softmax: softmaxes(),
    ops.SoftmaxCrossEntropy: losses(),
    ops.Tanh: one(ops.Tanh()),
}  # fmt: skip


def reorders(*tags: str) -> Cases:
    return st.tuples(st.sampled_from(tags), st.sampled_from(tags)).flatmap(lambda two: one(Reorder(*two), images))


def beside(make: Callable[[st.DrawFn, int, tuple[int, ...]], Any], shapes: Any = tensors) -> Cases:
    """Of one input that holds the channels of k replicas; make(draw, k, the shape of one)."""

    @st.composite
    def cases(draw: st.DrawFn) -> Case:
        (n, c, *rest), k = draw(shapes), draw(replicas)
        return Case(make(draw, k, (n, c, *rest)), ((n, k * c, *rest),))

    return cases()


@st.composite
def wide_concats(draw: st.DrawFn) -> Case:
    (n, _, *rest), k = draw(images | rows), draw(replicas)
    parts = draw(st.lists(st.sampled_from([1, 3, 8, 16]), min_size=1, max_size=4))
    return Case(wide.WideConcat(len(parts), 1, replicas=k), tuple((n, k * c, *rest) for c in parts))


@st.composite
def wide_dropouts(draw: st.DrawFn) -> Case:
    (n, c, *rest), k = draw(images | rows), draw(replicas)
    op = wide.WideDropout(draw(st.sampled_from([0.1, 0.5])), replicas=k)
    return Case(op, ((n, k * c, *rest), (n, 4 * k)), (FLOAT, "uint32"), WORD)


def _wide_norm(draw: st.DrawFn, k: int, x: tuple[int, ...]) -> wide.WideLayerNorm:
    return wide.WideLayerNorm(**vars(layer_norm(len(x) - 1, draw)), replicas=k)


# Of several replicas at once: what only a GPU's kernel set computes.
WIDE: dict[type, Cases] = {
    wide.Beside: concats(wide.Beside),
    wide.WideConcat: wide_concats(),
    wide.WideDropout: wide_dropouts(),
    wide.WideLayerNorm: beside(_wide_norm),
    wide.WideLocalResponseNorm: beside(
        lambda draw, k, x: wide.WideLocalResponseNorm(**vars(draw(responses())), replicas=k), images | rows
    ),
    wide.WidePadChannels: beside(
        lambda draw, k, x: wide.WidePadChannels(k * (x[1] + draw(st.sampled_from([0, 1, 16]))), replicas=k),
        images | rows,
    ),
    wide.WideSoftmax: beside(lambda draw, k, x: wide.WideSoftmax(1, replicas=k), images | rows),
}


def given_in(case: Case, tag: str) -> tuple[str, ...]:
    """The layouts of inputs of which images come in `tag`."""
    if isinstance(case.op, Reorder):
        return (case.op.source,)
    if isinstance(case.op, wide.Beside) and case.dtypes != (FLOAT,):
        tag = "abcd"  # only floats are ever reordered
    return tuple(tag if len(shape) == 4 else canonical(shape) for shape in case.shapes)


@st.composite
def wanted(draw: st.DrawFn, case: Case) -> tuple[int, ...]:
    """Inputs that need a gradient, as a plan may ask: at least one, but for the first layer that has weights."""
    able = case.op.differentiable or ()
    if not able:
        return ()
    least = 0 if case.op.weights(*case.shapes) else 1
    return tuple(sorted(draw(st.sets(st.sampled_from(able), min_size=least))))


def asked(cases: Cases) -> st.SearchStrategy[tuple[Case, tuple[int, ...]]]:
    """Each with inputs that need a gradient."""
    return cases.flatmap(lambda case: st.tuples(st.just(case), wanted(case)))
