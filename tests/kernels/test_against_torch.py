"""The reference kernels of windows of images against PyTorch in float64, forward and backward, at random."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Shape
from mpibow.kernels.numpy import OPERATORS
from tests.kernels.cases import Bench, Case, name
from tests.kernels.operators import CASES, CHECKED
from tests.kernels.shapes import RANDOM, asked
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
F = torch.nn.functional

small, seeds, extents = st.integers(1, 3), st.integers(0, 2**31), st.integers(1, 9)
images, pairs = st.tuples(small, st.integers(1, 4), extents, extents), st.tuples(small, small)
TOLERANCE = 1e-10
WITH = [op for op, checked in CHECKED.items() if checked.torch is not None]


def check(case: Case, seed: int, wanted: tuple[int, ...] | None = None) -> None:
    """One case in float64, with the gradients of the inputs `wanted`."""
    op, oracle = case.op, CHECKED[type(case.op)].torch
    bench = Bench(case, OPERATORS[type(op)], "float64", seed, wanted=wanted)
    x = [torch.from_numpy(array.copy()) for array in bench.x]
    w = {key: torch.from_numpy(array.copy()).requires_grad_() for key, array in bench.w.items()}
    trained = [i for i, dx in enumerate(bench.dx) if dx is not None]
    for i in trained:
        x[i].requires_grad_()
    expected = oracle(op, torch, *x, **w)
    close(bench.forward(), expected.detach())
    if op.differentiable is None or not (trained or w):
        return
    expected.backward(torch.from_numpy(bench.dy))
    backward = OPERATORS[type(op)].backward
    bench.hide_what_backward_may_not_read()
    backward(bench.call(backward=True))()
    for i in trained:
        close(bench.dx[i], x[i].grad)
    for key, array in bench.dw.items():
        close(array, w[key].grad)


def close(got, expected) -> None:
    np.testing.assert_allclose(got, expected.numpy(), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("case", [case for case in CASES if type(case.op) in WITH], ids=name)
def test_cases(case: Case):
    check(case, 0)


@pytest.mark.parametrize("op", [op for op in WITH if op in RANDOM], ids=lambda op: op.__name__)
@settings(max_examples=40)
@given(data=st.data(), seed=seeds)
def test_random(op: type, data: st.DataObject, seed):
    case, wanted = data.draw(asked(RANDOM[op]))
    check(case, seed, wanted)


@st.composite
def pooling(draw: st.DrawFn) -> tuple[tuple, Shape]:
    """Kernel, stride, padding, ceil, and a shape that they need not fit."""
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    return (kernel, draw(pairs), padding, draw(st.booleans())), draw(images)


def check_or_refuse(op, oracle: Callable, shape: Shape, seed: int) -> None:
    """What we refuse PyTorch refuses as well, and the other way round."""
    try:
        op.infer(shape)
    except ShapeError:
        with pytest.raises(RuntimeError):
            oracle(torch.zeros(shape))
    else:
        check(Case(op, (shape,)), seed)


@settings(max_examples=60)
@given(pooling(), seeds)
def test_max_pool(case: tuple[tuple, Shape], seed):
    (kernel, stride, padding, ceil), shape = case
    op = ops.MaxPool2d(kernel, stride, padding, ceil)
    check_or_refuse(op, lambda x: F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil), shape, seed)


@settings(max_examples=60)
@given(pooling(), st.booleans(), seeds)
def test_avg_pool(case: tuple[tuple, Shape], count, seed):
    given, shape = case
    check_or_refuse(ops.AvgPool2d(*given, count), lambda x: F.avg_pool2d(x, *given, count), shape, seed)
