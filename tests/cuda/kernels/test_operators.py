"""mpibow's own CUDA kernels on the host, operator by operator, against NumPy's: in float64, some to the bit.

What is run are the launches that a device gets. All of them run with threads and blocks in either order.
"""

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.cuda.kernels.kernels import KERNELS, Launch
from mpibow.cuda.kernels.table import LAUNCHED
from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Kernel, Run
from mpibow.graph.formats import Reorder
from mpibow.graph.rewrite import Convert
from mpibow.graph.steps import Sum
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
from tests.cuda.kernels.host import needs_compiler, prepared, run_all
from tests.kernels.against import results
from tests.kernels.cases import INITIAL, Bench, Case, name
from tests.kernels.draw import tensors
from tests.kernels.operators import CASES, CHECKED
from tests.kernels.reference import REFERENCE
from tests.kernels.shapes import RANDOM, WIDE, asked, given_in, reorders

pytestmark = needs_compiler
prepare = prepared(*sorted(set(KERNELS.values())))

CUDNN = (ops.BatchNorm, ops.Conv2d, ops.Dense)  # what cuDNN computes
VIEWS = (ops.Flatten, ops.View)
# Of max |reference|: 4 times half a unit of the last place, as what backward reads is rounded too.
HALF = {"float16": 2e-3, "bfloat16": 1.6e-2}
PRECISIONS = ("float32", *HALF)
WIDE_INPUTS = {ops.SoftCrossEntropy: (1,), ops.Mix: (1,), ops.MatrixFactorisation: (2,)}  # float32 in every precision
WIDE_OUTPUTS = (
    ops.Accuracy, ops.MatrixFactorisation, ops.MixShares, ops.OneHot, ops.SoftCrossEntropy, ops.SoftmaxCrossEntropy
)  # fmt: skip


def on_host(op: type, backwards: bool) -> Kernel:
    def bind(launches: Sequence[Launch]) -> Run:
        return lambda: run_all(launches, backwards)

    return LAUNCHED[op].bound(bind)


def bench(
    case: Case, dtype: str, given: tuple[str, ...] | None, backwards: bool, training: bool = True, **more
) -> Bench:
    """Of the kernel on the host; weights, and what the module's tables say, are float32."""
    made = Bench(case, on_host(type(case.op), backwards), dtype, training=training, given=given, **more)
    wide = WIDE_INPUTS.get(type(case.op), ())
    made.x = tuple(x.astype("float32") if i in wide else x for i, x in enumerate(made.x))
    if isinstance(case.op, WIDE_OUTPUTS):
        made.y, made.dy = made.y.astype("float32"), made.dy.astype("float32")
    made.dy = made.dy.astype(made.y.dtype) if isinstance(case.op, Convert) else made.dy
    made.w = {key: array.astype("float32") for key, array in made.w.items()}
    made.dw = {key: array.astype("float32") for key, array in made.dw.items()}
    return made


def compare(case: Case, dtype: str, given: tuple[str, ...] | None, exact: bool = False, **more) -> None:
    """Evaluation and training, in both orders of threads, whose bits are the same; NumPy's too where `exact`."""
    for training in (False, True):
        if case.op.is_view(training):
            continue
        there, back = (
            results(bench(case, dtype, given, backwards, training, **more), "float32" if exact else "float64")
            for backwards in (False, True)
        )
        for result, again in zip(there, back, strict=True):
            np.testing.assert_array_equal(result.got, again.got, err_msg=result.name)
            if exact:
                np.testing.assert_array_equal(result.got, result.expected, err_msg=result.name)
            elif dtype == "float32":
                result.close(case.op.kind)
            else:  # its rounding is the last, sums are float32
                replace(result, length=1).close(case.op.kind, HALF[dtype])


MORE = [
    Case(AddRelu(), ((3, 4), (3, 4))),
    Case(Reorder("abcd", "acdb"), ((2, 3, 4, 5),)),
    Case(Reorder("acdb", "abcd"), ((2, 40, 5, 9),), id="back, more than a tile"),
    Case(Convert(FLOAT), ((3, 5, 7),), ("float32",)),
    Case(Convert("float32"), ((3, 5, 7),), id="back"),
    Case(Sum(), ((2, 3),) * 9, (FLOAT,) * 9, id="nine"),
    Case(ops.Add((2.0, 1.0, -0.5, 3.0, 1.0, 0.25)), ((3, 5),) * 6, id="six with coefficients"),
    Case(ops.Maximum(5), ((3, 5),) * 5, id="five"),
    Case(ops.Normalise((0.5,), (2.0,)), ((3, 1, 5),), id="floats"),
    Case(ops.Normalise((900.0,), (300.0,)), ((3, 1, 5),), ("float32",), 2000, id="stored floats"),
    Case(ops.Jitter(0.4, 0.3), ((3, 2, 4, 5), (3, 4)), ("float32", "uint32"), 200, id="stored floats"),
    Case(ops.MaxPool2d((3, 3), (2, 2), (1, 1)), ((2, 16, 5, 4),), id="packs"),
    Case(ops.AvgPool2d((3, 2), (2, 1), (1, 1)), ((2, 16, 5, 4),), id="packs"),
    Case(ops.AdaptiveAvgPool2d((2, 3)), ((2, 16, 5, 4),), id="packs"),
    Case(ops.Concat(2, 1), ((2, 8, 2, 2), (2, 24, 2, 2)), id="packs"),
    Case(ops.PadChannels(24), ((2, 16, 3),), id="packs"),
    Case(Beside(3, 1), ((4, 1), (4, 1), (4, 1)), (FLOAT,) * 3),
    Case(Beside(2, 1), ((4, 1), (4, 1)), ("int64",), id="labels"),
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
    *[Case(ops.Where(), ((3, 5),) * 3, (kind, FLOAT, FLOAT), 2, id=kind) for kind in ("int32", "int64", "uint8")],
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
LACKING = tuple(op for op, checked in CHECKED.items() if "cuda" in checked.lacking)
MINE = [case for case in [*CASES, *MORE] if not isinstance(case.op, CUDNN + VIEWS + LACKING)]
# What no operator launches: a test in test_flat, test_direct or test_gather each.
NO_OPERATORS = ("flat.cu", "steps.cu", "update.cu", "apply.cu")
DIRECT = {kernel for kernel, source in KERNELS.items() if source in NO_OPERATORS} | {
    kernel for kernel in KERNELS if kernel.split("<")[0] in ("cast", "fill", "gather")
}


def layouts(case: Case) -> tuple[tuple[str, ...] | None, ...]:
    """Canonical, and where there are images channels last."""
    images = len(case.shapes[0]) == 4 and not isinstance(case.op, Reorder)
    return (None, ("acdb",) * len(case.shapes)) if images else (None,)


def test_every_operator_is_there():
    """Of NumPy's table, cuDNN computes some; of this table, all are checked."""
    assert set(NUMPY) - set(LAUNCHED) == {*CUDNN, *LACKING}
    assert {type(case.op) for case in MINE} == set(LAUNCHED)


def test_every_kernel_is_launched_by_some_case():
    launched = set()

    def noted(launches: Sequence[Launch]) -> Run:
        launched.update(launch.kernel for launch in launches)
        return lambda: None

    for case in MINE:
        for dtype in PRECISIONS:
            for tags in layouts(case):
                made = bench(case, dtype, tags, False)
                own = LAUNCHED[type(case.op)].bound(noted)
                own.forward(made.call(backward=False))
                if own.backward is not None and case.op.differentiable is not None:
                    own.backward(made.call(backward=True))
    assert launched | DIRECT == set(KERNELS)
    assert not launched & {kernel for kernel in DIRECT if KERNELS[kernel] in NO_OPERATORS}


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("case", MINE, ids=name)
def test_cases(case: Case, dtype):
    for tags in layouts(case):
        compare(case, dtype, tags)


SWAPS = reorders("abcd", "acdb")
CONVERSIONS = tensors.map(lambda shape: Case(Convert("float32"), (shape,)))
EXACT = {  # NumPy's bits in float32
    AddRelu, Beside, Convert, Reorder, Sum, WideConcat, WideDropout, WidePadChannels, ops.Accuracy, ops.Add,
    ops.Augment, ops.CentreCrop, ops.ClippedRelu, ops.Concat, ops.Cutout, ops.Dropout, ops.Jitter, ops.LeakyRelu,
    ops.Maximum, ops.Mix, ops.MixShares, ops.Multiply, ops.Normalise, ops.OneHot, ops.PadChannels, ops.Relu,
}  # fmt: skip


@pytest.mark.parametrize("op", LAUNCHED, ids=lambda op: op.kind)
@settings(max_examples=10)
@given(data=st.data(), seed=st.integers(0, 1000), tag=st.sampled_from(["abcd", "acdb"]))
def test_it_is_numpys(op: type, data: st.DataObject, seed, tag):
    case, wanted = data.draw(asked({**RANDOM, **WIDE, Reorder: SWAPS, Convert: CONVERSIONS}[op]))
    compare(case, "float32", given_in(case, tag), op in EXACT, wanted=wanted, seed=seed)


# What NaN and infinity do, and what is no class.


def forward_of(case: Case, **x):
    fast = bench(case, "float32", None, False)
    for i, array in x.items():
        fast.x[int(i[1:])][...] = array
    return fast.forward()


@pytest.mark.parametrize(
    "op", [ops.Relu(), ops.LeakyRelu(0.1), ops.ClippedRelu(1.0), ops.Gelu(False), ops.Gelu(True), ops.Sigmoid()]
)
def test_nan_is_passed_on(op):
    y = forward_of(Case(op, ((1, 6),)), x0=[[np.nan, 1, -1, 2, 0, np.nan]])
    assert np.isnan(y).tolist() == [[True, False, False, False, False, True]]


def test_nan_is_the_largest():
    y = forward_of(Case(ops.Maximum(3), ((1, 3),) * 3), x0=[[np.nan, 1, 1]], x1=[[0, np.nan, 0]], x2=[[5, 5, 5]])
    assert np.isnan(y).tolist() == [[True, True, False]]
    image = np.array([[[[1, np.nan], [3, 4]]]])
    assert np.isnan(forward_of(Case(ops.MaxPool2d((2, 2), (2, 2)), ((1, 1, 2, 2),)), x0=image)).all()


def test_losses_hide_nothing():
    """A label that is no class, NaN, and infinity at the top give NaN; one that is ignored gives 0."""
    case = Case(ops.SoftmaxCrossEntropy(0.0, -1), ((6, 2), (6,)), (FLOAT, "int32"))
    logits = [[1, 1], [1, 1], [1, 1], [np.nan, 1], [np.inf, 1], [-np.inf, 1]]
    y = forward_of(case, x0=logits, x1=[-1, 2, -2, 1, 1, 1])
    np.testing.assert_array_equal(y, [0, np.nan, np.nan, np.nan, np.nan, 0])


def test_what_is_among_the_best():
    """Equals count in their order; NaN is ahead of all, and is never right itself."""
    case = Case(ops.Accuracy(2), ((6, 3), (6,)), (FLOAT, "int32"))
    logits = [[1, 1, 1], [1, 1, 1], [3, 2, 1], [np.nan, np.nan, 9], [np.nan, 1, 1], [1, 2, 3]]
    y = forward_of(case, x0=logits, x1=[1, 2, 1, 2, 0, 3])
    assert y.tolist() == [1, 0, 1, 0, 0, 0]


def test_a_ceiling_that_half_precision_rounds():
    """0.7 is 0.69921875 in bfloat16: what is clipped to that must have no gradient."""
    fast = bench(Case(ops.ClippedRelu(0.7), ((1, 3),)), "bfloat16", None, False)
    fast.x[0][...] = [[0.5, 0.7, 9.0]]
    fast.dy[...] = 1
    fast.forward()
    fast.backward()
    assert fast.dx[0].astype("float32").tolist() == [[1, 0, 0]]


def test_reorders_that_are_no_transpose():
    with pytest.raises(ShapeError, match=r"^CUDA kernels reorder by swapping two runs of axes, got abcd to dcba$"):
        LAUNCHED[Reorder].bound(lambda launches: lambda: None).forward(
            Bench(Case(Reorder("abcd", "dcba"), ((1, 2, 3, 4),)), REFERENCE[Reorder], "float32").call(backward=False)
        )
