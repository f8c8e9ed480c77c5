"""cuDNN's layers on the device, alone and in nets, against NumPy in float64; plans that are kept, and timed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings, strategies as st

from mpibow import ops
from mpibow.cuda.kernels import plans
from mpibow.cuda.kernels.cudnn import DeviceTimer
from mpibow.cuda.kernels.layers import layers
from mpibow.cuda.kernels.operands import PRECISIONS
from mpibow.cuda.kernels.plans import Planner, Target
from mpibow.cuda.kernels.specs import ConvForward, ConvGeometry
from mpibow.errors import DeviceError, ShapeError
from mpibow.graph import Array
from mpibow.kernels.numpy import OPERATORS as NUMPY
from mpibow.ops.fused import ConvNormAddRelu, ConvRelu, NormAddRelu
from tests.cuda.kernels.test_layers import NETS, REFERENCE, graph_of, run
from tests.gpu import opened
from tests.kernels.cases import INITIAL, Alone, Bench, Case, kind_of, name
from tests.kernels.draw import channels, sides
from tests.kernels.operators import CASES
from tests.kernels.operators.conv import convolutions

pytestmark = opened.needs_gpu()

# Of what a sum of as many normal numbers is: TF32 keeps 10 bits of a factor, bfloat16 7 and float16 10 of a result.
UNIT = {"fp32": 3e-6, "tf32": 3e-3, "bf16": 2e-2, "fp16": 4e-3}
NORM = 20  # looser: a difference of two sums is divided by a deviation that may be small
LAYERS = (ops.BatchNorm, ops.Conv2d, ops.Dense)
HOST = ("frozen", "of a rank")
MINE = [case for case in CASES if isinstance(case.op, LAYERS) and case.id not in HOST]
CONV = ops.Conv2d(16, (3, 3), (1, 1), (1, 1), True, INITIAL)
PLAIN = ops.Conv2d(16, (3, 3), (2, 2), (1, 1), False, INITIAL)
BN = ops.BatchNorm(1e-3, 0.1)
FUSED = [  # what cuDNN computes in one graph
    Case(ConvRelu(CONV), ((4, 8, 9, 7),)),
    Case(ConvRelu(PLAIN), ((4, 8, 9, 7),), id="no bias"),
    Case(NormAddRelu(BN, False), ((5, 16, 4, 3),)),
    Case(NormAddRelu(BN, True), ((5, 16, 4, 3),) * 2, id="added"),
]


EVALUATED = [
    Case(Alone(PLAIN, BN, False, True), ((4, 8, 9, 7),)),
    Case(Alone(PLAIN, BN, False, False), ((4, 8, 9, 7),), id="no relu"),
    Case(Alone(CONV, BN, False, True), ((4, 8, 9, 7),), id="bias"),
    Case(Alone(PLAIN, BN, True, True), ((4, 8, 9, 7), (4, 16, 5, 4)), id="added"),
]


@dataclass
class Pair:
    """A layer on the device and the operators that it stands for in NumPy, with the same numbers."""

    fast: Bench
    case: Case
    length: float  # of the longest sum

    @classmethod
    def of(cls, case: Case, precision: str, training: bool = True, planner: Planner | None = None) -> Pair:
        """Raises DeviceError where cuDNN has no engine, ShapeError where it takes no such channels."""
        mirror = opened.Mirror()
        kernel = mirror.layer(layers(mirror.cudnn(planner), PRECISIONS[precision])[kind_of(case.op)])
        images = len(case.shapes[0]) == 4
        fast = Bench(
            case, opened.apart(kernel, mirror), PRECISIONS[precision].io, training=training,
            given=("acdb" if images else "ab",) * len(case.shapes),
        )  # fmt: skip
        for arrays in (fast.w, fast.dw, fast.statistics):
            arrays.update({key: array.astype(np.float32) for key, array in arrays.items()})
        inner = case.op.conv if isinstance(case.op, ConvRelu | ConvNormAddRelu) else case.op
        area = inner.kernel[0] * inner.kernel[1] if isinstance(inner, ops.Conv2d) else 1
        n, c, *rest = case.shapes[0]
        return cls(fast, case, max(c * area, fast.shape[1] * area, n * np.prod(rest)))

    def slow(self, op, *shapes: tuple[int, ...]) -> Bench:
        bench = Bench(Case(op, shapes), NUMPY[type(op)], "float64", training=self.fast.shapes.training)
        return bench

    def close(self, got: Array, expected: Array, precision: str) -> None:
        norm = isinstance(self.case.op, ops.BatchNorm | NormAddRelu | ConvNormAddRelu)
        scale = np.abs(expected).max(initial=0.0) + np.sqrt(max(self.length, 1.0)) * (not norm)
        bound = UNIT[precision] * (NORM if norm else 1) * max(scale, 1.0)
        worst = np.abs(got.astype(np.float64) - expected).max(initial=0.0)
        assert worst <= bound, f"off by {worst:g}, bound {bound:g}"


def wide(array: Array, io: str = "float64") -> Array:
    return array.astype(io).astype(np.float64)


def check(case: Case, precision: str, planner: Planner | None = None) -> None:
    """Training, forward and backward."""
    pair = Pair.of(case, precision, planner=planner)
    fast, op, io = pair.fast, case.op, PRECISIONS[precision].io
    inner = op.conv if isinstance(op, ConvRelu) else op.norm if isinstance(op, NormAddRelu) else op
    relu = isinstance(op, ConvRelu | NormAddRelu)
    slow = pair.slow(inner, case.shapes[0])
    weights = io if not isinstance(inner, ops.BatchNorm) else "float32"
    slow.x, slow.w = (wide(fast.x[0]),), {key: wide(array, weights) for key, array in fast.w.items()}
    slow.statistics = {key: wide(array) for key, array in fast.statistics.items()}
    got, expected = fast.forward(), slow.forward()
    if len(fast.x) > 1:
        expected = expected + wide(fast.x[1])
    pair.close(got, np.maximum(expected, 0) if relu else expected, precision)
    for key, array in slow.statistics.items():
        pair.close(fast.statistics[key], array, precision)
    fast.hide_what_backward_may_not_read()
    fast.backward()
    slow.dy = wide(fast.dy) * (wide(got) > 0) if relu else wide(fast.dy)
    slow.backward()
    pair.close(fast.dx[0], slow.dx[0], precision)
    if len(fast.x) > 1:
        pair.close(fast.dx[1], slow.dy, precision)
    for key, array in slow.dw.items():
        pair.close(fast.dw[key], array, precision)


def refused(error: Exception) -> bool:
    """Whether cuDNN has nothing for shapes that no model of ours has, and says so."""
    return " has no engine on " in str(error) or "cuDNN's batch norm needs a multiple of " in str(error)


@pytest.mark.parametrize("precision", list(UNIT))
@pytest.mark.parametrize("case", [*MINE, *FUSED], ids=name)
def test_a_layer(case: Case, precision):
    try:
        check(case, precision)
    except (DeviceError, ShapeError) as error:
        if not refused(error) or case in FUSED:
            raise
        pytest.skip(str(error).splitlines()[0])


@pytest.mark.parametrize("precision", list(UNIT))
@pytest.mark.parametrize("case", EVALUATED, ids=name)
def test_a_norm_by_running_statistics_goes_with_its_convolution(case: Case, precision):
    pair = Pair.of(case, precision, training=False)
    fast, op, io = pair.fast, case.op, PRECISIONS[precision].io
    conv, norm = pair.slow(op.conv, case.shapes[0]), pair.slow(op.norm, fast.shape)
    conv.x = (wide(fast.x[0]),)
    conv.w = {key: wide(fast.w[key], io) for key in conv.w}
    norm.x = (conv.forward(),)
    norm.w = {key: wide(fast.w[f"batch_norm.{key}"]) for key in norm.w}
    norm.statistics = {key: wide(fast.statistics[f"batch_norm.{key}"]) for key in norm.statistics}
    expected = norm.forward() + (wide(fast.x[1]) if op.added else 0)
    pair.close(fast.forward(), np.maximum(expected, 0) if op.relu else expected, precision)


FEW = settings(max_examples=8, derandomize=True)  # cuDNN compiles kernels for new shapes


def check_or_reject(case: Case, precision: str) -> None:
    """The shapes that cuDNN has nothing for are none of the examples."""
    try:
        check(case, precision)
    except (DeviceError, ShapeError) as error:
        if not refused(error):
            raise
        reject()


@pytest.mark.parametrize("precision", list(UNIT))
@given(convolutions(), st.booleans())
@FEW
def test_convolutions(precision, found: tuple[ops.Conv2d, tuple[int, ...]], relu):
    op, shape = found
    try:
        op.infer(shape)
    except ShapeError:
        reject()
    check_or_reject(Case(ConvRelu(op) if relu else op, (shape,)), precision)


@pytest.mark.parametrize("precision", list(UNIT))
@given(st.integers(1, 20), st.integers(1, 70), st.integers(1, 70), st.booleans())
@FEW
def test_dense(precision, n, features, units, bias):
    check_or_reject(Case(ops.Dense(units, bias, INITIAL), ((n, features),)), precision)


@pytest.mark.parametrize("precision", list(UNIT))
@given(st.tuples(st.integers(1, 6), channels, sides, sides), st.sampled_from([None, False, True]))
@FEW
def test_batch_norm(precision, shape, fused):
    n, c, h, w = shape
    shape = (n, 8 * c, h, w)  # vectors of 16 bytes in every precision
    assume(n * h * w > 3)  # the variance of two values may be next to nothing
    op = BN if fused is None else NormAddRelu(BN, fused)
    check(Case(op, (shape,) * (2 if fused else 1)), precision)


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("net", NETS)
def test_nets(net, training, precision):
    """Whole plans: layers, own kernels, reorders and fused steps, in one arena on the device."""
    graph, bound = graph_of(NETS[net]), 30 * UNIT[precision]
    found = run(graph, opened.kernels(precision), training=training, dtype="float32")
    expected = run(graph, REFERENCE, training=training, dtype="float64")
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_allclose(
            found[key], array, rtol=bound, atol=bound * max(np.abs(array).max(), 0.05), err_msg=key
        )


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
def test_the_same_bits_again(precision):
    graph = graph_of(NETS["residual"])
    first, again = (run(graph, opened.kernels(precision), training=True, dtype="float32") for _ in range(2))
    for key in first:
        np.testing.assert_array_equal(first[key], again[key], err_msg=key)


# How plans are chosen, and kept

SPEC = ConvForward(
    ConvGeometry((4, 16, 8, 8), (16, 16, 3, 3), (4, 16, 8, 8), (1, 1), (1, 1), (1, 1)), PRECISIONS["tf32"]
)
CASE = Case(ops.Conv2d(16, (3, 3), (1, 1), (1, 1), False, INITIAL), ((4, 16, 8, 8),))


def test_plans_are_kept_on_disk(tmp_path, monkeypatch):
    made = opened.device().planner(folder=tmp_path).plan(SPEC)
    monkeypatch.setattr(plans, "candidates", lambda *_: pytest.fail("it is planned again"))
    kept = opened.device().planner(folder=tmp_path).plan(SPEC)
    assert kept.made == made.made
    assert list(tmp_path.iterdir())
    monkeypatch.undo()
    again = opened.device().planner(folder=tmp_path)
    check(CASE, "tf32", again)
    first, second = (Pair.of(CASE, "tf32", planner=planner).fast for planner in (opened.device().planner(), again))
    np.testing.assert_array_equal(first.forward(), second.forward())


def test_the_fastest_of_several_is_taken():
    device = opened.device()
    timer = DeviceTimer(device.driver, device.stream, device.handles.of)
    target = Target("timed", handle=device.handles.of(device.stream))
    planner = Planner(target, 3, timer=timer)
    seconds = planner.plan(SPEC).made.seconds
    assert 1e-7 < seconds < 1e-2
    check(CASE, "tf32", planner)
