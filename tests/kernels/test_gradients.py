"""Every operator's gradient against a central difference along one random direction, in float64."""

import numpy as np
import pytest

from mpibow import ops
from mpibow.graph import FLOAT, Op
from mpibow.kernels.numpy import OPERATORS
from tests.kernels.against import alike_alone
from tests.kernels.cases import Bench, Case, name
from tests.kernels.operators import CASES, CHECKED

DIFFERENTIABLE = [
    case
    for case in CASES
    if type(case.op) in OPERATORS and OPERATORS[type(case.op)].backward is not None and not case.op.is_view(True)
]


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=name)
def test_gradient(case: Case):
    bench = Bench(case, OPERATORS[type(case.op)], "float64")
    generator = np.random.default_rng(1)
    moved = [array for array, dx in zip(bench.x, bench.dx, strict=True) if dx is not None] + list(bench.w.values())
    directions = [generator.standard_normal(array.shape) for array in moved]
    step, weight = 1e-6, bench.dy
    for array in bench.dmore:
        array[...] = generator.standard_normal(array.shape)

    def objective(sign: float) -> float:
        for array, direction in zip(moved, directions, strict=True):
            array += sign * step * direction
        value = float((bench.forward() * weight).sum())
        value += sum(float((y * dy).sum()) for y, dy in zip(bench.more, bench.dmore, strict=True))
        for array, direction in zip(moved, directions, strict=True):
            array -= sign * step * direction
        return value

    expected = (objective(1.0) - objective(-1.0)) / (2 * step)
    bench.forward()
    bench.hide_what_backward_may_not_read()
    run = OPERATORS[type(case.op)].backward(bench.call(backward=True))
    run()
    once = [np.copy(array) for array in (*bench.dx, *bench.dw.values()) if array is not None]
    run()  # overwrites, never adds
    gradients = [dx for dx in bench.dx if dx is not None] + list(bench.dw.values())
    for array, before in zip(gradients, once, strict=True):
        np.testing.assert_array_equal(array, before)
    got = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("case", [case for case in DIFFERENTIABLE if OPERATORS[type(case.op)].inputs_alone], ids=name)
def test_gradients_of_inputs_alone(case: Case):
    bench = Bench(case, OPERATORS[type(case.op)], "float64")
    bench.forward()
    bench.backward()
    alike_alone(bench)


# NumPy's kernels know one layout, and fuse neither nodes nor learners.
ELSEWHERE = ("mpibow.graph.formats", "mpibow.graph.rewrite", "mpibow.ops.fused", "mpibow.ops.wide")


def _operators(parent: type = Op) -> set[type]:
    found = set()
    for child in parent.__subclasses__():
        found |= {child} | _operators(child)
    own = {op for op in found if "kind" in op.__dict__ and op.__module__.startswith("mpibow.")}
    return {op for op in own if op.__module__ not in ELSEWHERE}


def test_every_operator_has_a_case_and_a_kernel_or_is_a_view():
    cased = {type(case.op) for case in CASES}
    assert {op.__name__ for op in _operators()} == {op.__name__ for op in cased}
    views = {type(case.op) for case in CASES if case.op.is_view(True)}
    assert set(OPERATORS) - views == cased - views


def test_every_trainable_operator_has_a_backward():
    for case in CASES:
        if type(case.op) in OPERATORS and case.op.kind != "sum":
            assert (OPERATORS[type(case.op)].backward is None) == (case.op.differentiable is None), name(case)


def test_floats_without_a_gradient():
    """A net that needs one of these is refused. A sum is of gradients only."""
    found = {
        (case.op.kind, i)
        for case in CASES
        for i, kind in enumerate(case.kinds)
        if kind == FLOAT and i not in case.able and i not in case.op.flat and case.op.kind != "sum"
    }
    images = {(kind, 0) for kind in ("augment", "centre_crop", "cutout", "jitter", "mix")}
    assert found == images | {("mix", 1), ("counted_mean", 1), ("matrix_factorisation", 2), ("soft_cross_entropy", 1)}


def test_every_operator_has_a_slow_definition():
    """But for those that differ in training, which have tests of their own, and for views, which compute nothing."""
    assert {op for op, checked in CHECKED.items() if checked.plain is None} == {
        ops.BatchNorm,
        ops.BatchNormOf,
        ops.CountedMean,
        ops.Flatten,
        ops.Parameter,
        ops.View,
    }
