"""Every operator at random: the cases that each kernel set is compared on with NumPy."""

from collections.abc import Callable

from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT
from mpibow.graph.formats import Reorder, canonical
from mpibow.ops import wide
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
from tests.kernels.cases import Alone, Case
from tests.kernels.draw import WORD, Cases, images, one, replicas, rows, tensors
from tests.kernels.operators import RANDOM as PLAIN_RANDOM
from tests.kernels.operators.arithmetic import expansions
from tests.kernels.operators.attention import masks
from tests.kernels.operators.batch_norm import batch_norms
from tests.kernels.operators.concat import concats
from tests.kernels.operators.conv import CONVOLUTIONS
from tests.kernels.operators.local_response import responses
from tests.kernels.operators.norms import some as layer_norm


@st.composite
def evaluated(draw: st.DrawFn) -> Case:
    op, shape = draw(CONVOLUTIONS.filter(lambda found: found[0].groups == 1))
    added = draw(st.booleans())
    shapes = (shape, op.infer(shape)) if added else (shape,)
    return Case(Alone(op, ops.BatchNorm(1e-3, 0.1), added, draw(st.booleans())), shapes)


@st.composite
def heads_together(draw: st.DrawFn) -> Case:
    heads, n, t, s, d, e = draw(st.tuples(*[st.integers(1, 5)] * 6))
    op = HeadsAttention(ops.Attention(0.5, draw(st.booleans())), heads, draw(st.booleans()))
    three = ((n, t, 3 * heads * d),) if op.packed else ((n, t, heads * d), (n, s, heads * d), (n, s, heads * e))
    mask, kind = draw(masks((n, heads, t, t if op.packed else s)))
    return Case(op, (*three, *mask), (*[FLOAT] * len(three), *kind), integers_below=2)


@st.composite
def turned_products(draw: st.DrawFn) -> Case:
    """Of one matrix on the right those on the left are never turned, unless they are one."""
    front, one = draw(st.lists(st.integers(1, 3), max_size=2)), draw(st.booleans())
    m, n, k = draw(st.tuples(*[st.integers(1, 40)] * 3))
    first = draw(st.booleans()) and not (one and front)
    op = TurnedMatmul((first, draw(st.booleans()) or not first))
    behind = [] if one else front
    a, b = op.straight((*front, m, k), (*behind, k, n))
    return Case(op, (a, b))


FUSED = {
    AddRelu: tensors.map(lambda shape: Case(AddRelu(), (shape,) * 2)),
    ConvNormAddRelu: evaluated(),
    ConvRelu: CONVOLUTIONS.map(lambda found: Case(ConvRelu(found[0]), found[1:])),
    ExpandAdd: expansions().map(lambda case: Case(ExpandAdd(), (case.shapes[0], case.op.shape))),
    ExpandMultiply: expansions().map(lambda case: Case(ExpandMultiply(), (case.shapes[0], case.op.shape))),
    HeadsAttention: heads_together(),
    NormAddRelu: st.one_of(
        batch_norms(lambda norm: NormAddRelu(norm, False)), batch_norms(lambda norm: NormAddRelu(norm, True), 2)
    ),
    TurnedMatmul: turned_products(),
}
RANDOM = {**PLAIN_RANDOM, **FUSED}


def reorders(*tags: str) -> Cases:
    return st.tuples(st.sampled_from(tags), st.sampled_from(tags)).flatmap(lambda two: one(Reorder(*two), images))


def beside(make: Callable, shapes=tensors) -> Cases:
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
WIDE = {
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
    if not case.able:
        return ()
    least = 0 if case.op.weights(*case.shapes) else 1
    return tuple(sorted(draw(st.sets(st.sampled_from(case.able), min_size=least))))


def asked(cases: Cases) -> st.SearchStrategy[tuple[Case, tuple[int, ...]]]:
    """Each with inputs that need a gradient."""
    return cases.flatmap(lambda case: st.tuples(st.just(case), wanted(case)))
