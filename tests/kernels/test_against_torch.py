"""The reference kernels against PyTorch in float64, forward and backward, over random shapes and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Shape
from mpibow.kernels.numpy import OPERATORS
from tests.kernels.cases import Bench, Case
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch: Any = pytorch()
F = torch.nn.functional

INITIAL = ops.Constant(0.0)
TOLERANCE = 1e-10
several = settings(deadline=None, max_examples=40)

small, seeds = st.integers(1, 3), st.integers(0, 2**31)
extents = st.integers(1, 9)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
images = st.tuples(st.integers(1, 3), st.integers(1, 4), extents, extents)
pairs = st.tuples(small, small)
labelled = st.tuples(st.integers(1, 6), st.integers(1, 7))


def check(op: Any, oracle: Callable[..., Any], inputs: list[Shape], seed: int, *kinds: Any) -> None:
    """`oracle` takes the inputs as torch tensors, then the weights by name, and gives what `op` should."""
    dtypes, below = (kinds[0], kinds[1]) if kinds else ((FLOAT,) * len(inputs), 4)
    bench = Bench(Case(op, tuple(inputs), dtypes, below), OPERATORS[type(op)], "float64", seed)
    x = [torch.from_numpy(array.copy()) for array in bench.x]
    w = {key: torch.from_numpy(array.copy()).requires_grad_() for key, array in bench.w.items()}
    for i in op.differentiable or ():
        x[i].requires_grad_()
    expected = oracle(*x, **w)
    close(bench.forward(), expected.detach())
    if op.differentiable is None:
        return
    expected.backward(torch.from_numpy(bench.dy))
    backward = OPERATORS[type(op)].backward
    assert backward is not None
    bench.hide_what_backward_may_not_read()
    backward(bench.call(backward=True))()
    for i in op.differentiable:
        close(bench.dx[i], x[i].grad)
    for key, array in bench.dw.items():
        close(array, w[key].grad)


def close(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected.numpy(), rtol=TOLERANCE, atol=TOLERANCE)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[ops.Conv2d, Shape]:
    groups, kernel, dilation, padding = draw(small), draw(pairs), draw(pairs), draw(st.tuples(*[st.integers(0, 2)] * 2))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    size = [max(1, r - 2 * p) + draw(st.integers(0, 4)) for r, p in zip(reach, padding, strict=True)]
    outputs, inputs = groups * draw(small), groups * draw(small)
    op = ops.Conv2d(outputs, kernel, draw(pairs), padding, draw(st.booleans()), INITIAL, groups, dilation)
    return op, (draw(small), inputs, *size)


@several
@given(convolutions(), seeds)
def test_conv(case: tuple[ops.Conv2d, Shape], seed: int) -> None:
    op, shape = case
    check(
        op,
        lambda x, weight, bias=None: F.conv2d(x, weight, bias, op.stride, op.padding, op.dilation, op.groups),
        [shape],
        seed,
    )


@several
@given(small, extents, extents, st.booleans(), seeds)
def test_dense(batch: int, features: int, units: int, bias: bool, seed: int) -> None:
    check(ops.Dense(units, bias, INITIAL), F.linear, [(batch, features)], seed)


@st.composite
def pooling(draw: st.DrawFn) -> tuple[tuple[Any, ...], Shape]:
    """Kernel, stride, padding, ceil, and a shape that they need not fit."""
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    return (kernel, draw(pairs), padding, draw(st.booleans())), draw(images)


def check_or_refuse(op: Any, oracle: Callable[..., Any], shape: Shape, seed: int) -> None:
    """What we refuse PyTorch refuses as well, and the other way round."""
    try:
        op.infer(shape)
    except ShapeError:
        with pytest.raises(RuntimeError):
            oracle(torch.zeros(shape))
    else:
        check(op, oracle, [shape], seed)


@settings(deadline=None, max_examples=150)
@given(pooling(), seeds)
def test_max_pool(case: tuple[tuple[Any, ...], Shape], seed: int) -> None:
    (kernel, stride, padding, ceil), shape = case
    op = ops.MaxPool2d(kernel, stride, padding, ceil)
    check_or_refuse(op, lambda x: F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil), shape, seed)


@settings(deadline=None, max_examples=150)
@given(pooling(), st.booleans(), seeds)
def test_avg_pool(case: tuple[tuple[Any, ...], Shape], count: bool, seed: int) -> None:
    (kernel, stride, padding, ceil), shape = case
    op = ops.AvgPool2d(kernel, stride, padding, ceil, count)
    check_or_refuse(op, lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil, count), shape, seed)


@several
@given(images, st.tuples(extents, extents), seeds)
def test_adaptive_and_global_avg_pool(shape: Shape, size: tuple[int, int], seed: int) -> None:
    check(ops.AdaptiveAvgPool2d(size), lambda x: F.adaptive_avg_pool2d(x, size), [shape], seed)
    check(ops.GlobalAvgPool2d(), lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), [shape], seed)


@several
@given(shapes, st.floats(0.0, 2.0), st.floats(0.1, 3.0), seeds)
def test_activations(shape: Shape, slope: float, ceiling: float, seed: int) -> None:
    for op, oracle in (
        (ops.Relu(), F.relu),
        (ops.Sigmoid(), torch.sigmoid),
        (ops.Tanh(), torch.tanh),
        (ops.LeakyRelu(slope), lambda x: F.leaky_relu(x, slope)),
        (ops.ClippedRelu(ceiling), lambda x: F.hardtanh(x, 0.0, ceiling)),
        (ops.Gelu(False), F.gelu),
        (ops.Gelu(True), lambda x: F.gelu(x, approximate="tanh")),
    ):
        check(op, oracle, [shape], seed)


@several
@given(shapes, st.lists(st.floats(-3, 3), min_size=2, max_size=4), seeds)
def test_sum_product_and_maximum(shape: Shape, coefficients: list[float], seed: int) -> None:
    inputs = [shape] * len(coefficients)
    check(
        ops.Add(tuple(coefficients)), lambda *x: sum(c * v for c, v in zip(coefficients, x, strict=True)), inputs, seed
    )
    check(ops.Multiply(len(inputs)), lambda *x: torch.stack(x).prod(0), inputs, seed)
    check(ops.Maximum(len(inputs)), lambda *x: torch.stack(x).max(0).values, inputs, seed)


@several
@given(shapes, st.lists(small, min_size=1, max_size=4), st.data(), seeds)
def test_concat(shape: Shape, along: list[int], data: st.DataObject, seed: int) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    inputs = [(*shape[:axis], extent, *shape[axis + 1 :]) for extent in along]
    check(ops.Concat(len(inputs), axis), lambda *x: torch.cat(x, axis), inputs, seed)


@several
@given(images, st.integers(0, 4), seeds)
def test_pad_channels(shape: Shape, more: int, seed: int) -> None:
    check(ops.PadChannels(shape[1] + more), lambda x: F.pad(x, (0, 0, 0, 0, 0, more)), [shape], seed)


@several
@given(images, st.integers(1, 7), st.floats(0, 2), st.floats(0, 1.5), st.floats(0.5, 2), seeds)
def test_local_response_norm(shape: Shape, size: int, alpha: float, beta: float, k: float, seed: int) -> None:
    op = ops.LocalResponseNorm(size, alpha, beta, k)
    check(op, lambda x: F.local_response_norm(x, size, alpha, beta, k), [shape], seed)


@several
@given(shapes.filter(lambda shape: len(shape) > 1), st.data(), st.floats(1e-5, 1.0), seeds)
def test_layer_norm(shape: Shape, data: st.DataObject, epsilon: float, seed: int) -> None:
    axes = data.draw(st.integers(1, len(shape) - 1))
    op = ops.LayerNorm(axes, epsilon)
    check(op, lambda x, weight, bias: F.layer_norm(x, shape[-axes:], weight, bias, epsilon), [shape], seed)


@several
@given(shapes, st.data(), seeds)
def test_softmax(shape: Shape, data: st.DataObject, seed: int) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    check(ops.Softmax(axis), lambda x: torch.softmax(x, axis), [shape], seed)


@several
@given(labelled, st.floats(0, 0.9), st.one_of(st.none(), st.integers(0, 6)), seeds)
def test_softmax_cross_entropy(shape: Shape, smoothing: float, ignore: int | None, seed: int) -> None:
    def oracle(logits: Any, label: Any) -> Any:
        ignored = -100 if ignore is None else ignore
        return F.cross_entropy(logits, label.long(), reduction="none", label_smoothing=smoothing, ignore_index=ignored)

    op = ops.SoftmaxCrossEntropy(smoothing, ignore)
    check(op, oracle, [shape, shape[:1]], seed, (FLOAT, "int32"), shape[1])


@several
@given(labelled, st.floats(0, 0.9), seeds)
def test_soft_cross_entropy(shape: Shape, smoothing: float, seed: int) -> None:
    check(
        ops.SoftCrossEntropy(smoothing),
        lambda logits, target: F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing),
        [shape, shape],
        seed,
    )


@several
@given(labelled, st.data(), seeds)
def test_accuracy(shape: Shape, data: st.DataObject, seed: int) -> None:
    k = data.draw(st.integers(1, shape[1]))

    def oracle(logits: Any, label: Any) -> Any:
        return (logits.topk(k).indices == label[:, None]).any(1).double()

    check(ops.Accuracy(k), oracle, [shape, shape[:1]], seed, (FLOAT, "int32"), shape[1])


@several
@given(st.integers(1, 8), small, small, seeds)
def test_matrix_factorisation(batch: int, factors: int, rows: int, seed: int) -> None:
    check(
        ops.MatrixFactorisation(rows, rows + 1, factors, INITIAL),
        lambda i, j, rating, user, item: ((user[i] * item[j]).sum(1) - rating) ** 2,
        [(batch,)] * 3,
        seed,
        ("int64", "int64", FLOAT),
        rows,
    )
