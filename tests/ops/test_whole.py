"""Graphs in which all of the operators meet: their gradients by finite differences, through a whole plan."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mpibow import ops
from mpibow.graph.graph import Graph, Tensor
from mpibow.graph.kernel import Kernels
from mpibow.graph.layout import initial_weights, plan_layout
from mpibow.graph.plan import compile_plan
from mpibow.kernels.numpy import OPERATORS


def forked(graph: Graph) -> Tensor:
    """Branches that are joined in every way that there is; one value is used three times, one twice by one node."""
    x = ops.conv2d(graph.input("image", (3, 2, 7, 6)), 4, 3, padding=1)
    x = ops.local_response_norm(ops.leaky_relu(x), 3, alpha=0.5)
    a = ops.max_pool2d(x, 3, stride=2, padding=1)
    b = ops.avg_pool2d(x, 3, stride=2, padding=1, count_padding=False)
    c = ops.conv2d(x, 4, 3, stride=2, padding=2, dilation=2, groups=2)
    y = ops.concat(ops.add(a, b, coefficients=[1.0, -0.5]), ops.maximum(a, c), ops.multiply(b, c), ops.multiply(a, a))
    return ops.adaptive_avg_pool2d(ops.clipped_relu(y), (2, 3))


def logits(graph: Graph) -> Tensor:
    x = ops.gelu(ops.layer_norm(ops.dense(ops.flatten(forked(graph)), 6)))
    return ops.dense(ops.add(x, ops.gelu(x, tanh=True)), 4)


def hard(graph: Graph) -> None:
    label = graph.input("label", (3,), "int32")
    graph.output("loss", ops.softmax_cross_entropy(logits(graph), label, smoothing=0.1, ignore=3))


def soft(graph: Graph) -> None:
    target = ops.softmax(graph.input("target", (3, 4)))
    graph.output("loss", ops.soft_cross_entropy(logits(graph), target))


def attention(graph: Graph) -> None:
    pooled = ops.dense(ops.global_avg_pool2d(forked(graph)), 4)
    weighed = ops.multiply(pooled, ops.softmax(pooled))
    graph.output("loss", ops.softmax_cross_entropy(weighed, graph.input("label", (3,), "int32")))


def ratings(graph: Graph) -> None:
    user, item = graph.input("user", (3,), "int32"), graph.input("item", (3,), "int32")
    loss = ops.matrix_factorisation(user, item, graph.input("rating", (3,)), users=2, items=5, factors=3)
    graph.output("loss", loss)


@pytest.mark.parametrize("build", [hard, soft, attention, ratings])
def test_gradient_of_a_plan(build: Callable[[Graph], None]) -> None:
    graph = Graph()
    build(graph)
    layout = plan_layout(graph)
    weights, gradients = initial_weights(layout, 1, "float64"), np.full(layout.size, np.nan)
    plan = compile_plan(graph, layout, Kernels(OPERATORS), "float64", training=True).bind(weights, gradients)
    evaluation = compile_plan(graph, layout, Kernels(OPERATORS), "float64", training=False).bind(weights)
    generator = np.random.default_rng(0)
    for key, array in plan.inputs.items():
        if array.dtype == np.float64:
            array[...] = generator.standard_normal(array.shape)
        else:
            array[...] = generator.integers(2, size=array.shape)
        evaluation.inputs[key][...] = array
    direction, step = generator.standard_normal(layout.size), 1e-6
    start, losses = weights.copy(), []
    for sign in (1, -1):
        weights[...] = start + sign * step * direction
        plan.run()
        losses.append(plan.outputs["loss"].mean())
    weights[...] = start
    plan.arena.fill(0xFF)  # NaN, and wild integers
    gradients.fill(np.nan)
    plan.run()
    evaluation.run()
    np.testing.assert_array_equal(evaluation.outputs["loss"], plan.outputs["loss"])
    written = ~np.isnan(gradients)  # all but the padding
    assert written.sum() == graph.weight_count
    got = gradients[written] @ direction[written]
    assert got == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-6)
    assert abs(got) > 1e-4
