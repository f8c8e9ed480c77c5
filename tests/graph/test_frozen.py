"""Frozen weights: which steps a plan leaves out, and that all other gradients stay the same bits."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Array, Graph, Kernels, choose_layout, compile_plan, initial_weights
from mpibow.graph.rewrite import frozen
from mpibow.graph.steps import compile_steps
from mpibow.kernels.numpy import OPERATORS
from tests.graph.test_steps import losses

WITHOUT = {op: replace(kernel, inputs_alone=False) for op, kernel in OPERATORS.items()}


def net() -> Graph:
    """image -> conv -> relu -> conv -> relu -> dense -> loss"""
    graph = Graph()
    x = ops.relu(ops.conv2d(graph.input("image", (3, 2, 5, 5)), 4, 3, name="low"))
    x = ops.relu(ops.conv2d(x, 3, 3, name="middle"))
    return losses(graph, ops.dense(ops.flatten(x), 4, name="head"))


def backward(names: Collection[str]) -> list[str]:
    """The backward steps of nodes with weights: what they write."""
    steps = compile_steps(frozen(net(), names), training=True).steps
    return [
        f"{s.node.name}: {', '.join([*s.writes, *s.gradients.values()])}"
        for s in steps
        if s.kind == "backward" and s.node.weights
    ]


def gradients(names: Collection[str], table: object = OPERATORS, dtype: str = "float64") -> dict[str, Array]:
    kernels = Kernels(table)
    graph = net()
    layout = choose_layout(graph, kernels)
    weights = initial_weights(layout, 0, dtype)
    flat = np.full(layout.size, np.nan, dtype)
    bound = compile_plan(frozen(graph, names), layout, kernels, dtype, training=True).bind(weights, flat)
    generator = np.random.default_rng(0)
    bound.inputs["image"][...] = generator.standard_normal((3, 2, 5, 5))
    bound.inputs["label"][...] = [0, 3, 1]
    bound.run()
    return layout.unpacked(flat)


HEAD = "head: d flatten1, d weight head.weight, d weight head.bias"
LOW = "low: d weight low.weight, d weight low.bias"


def test_nothing_frozen_is_the_same_graph():
    graph = net()
    assert frozen(graph, ()) is graph
    assert backward(()) == [HEAD, "middle: d relu1, d weight middle.weight, d weight middle.bias", LOW]


def test_backward_ends_at_the_lowest_trained_weight():
    low = ("low.weight", "low.bias")
    assert backward(low) == [HEAD, "middle: d weight middle.weight, d weight middle.bias"]
    assert backward((*low, "middle.weight", "middle.bias")) == ["head: d weight head.weight, d weight head.bias"]


def test_between_trained_weights_the_gradient_of_the_input_is_made_alone():
    assert backward(("middle.weight", "middle.bias")) == [HEAD, "middle: d relu1", LOW]


def test_beside_a_trained_bias_a_frozen_weights_gradient_is_made():
    assert backward(("low.weight",))[-1] == LOW


@pytest.mark.parametrize("table", [OPERATORS, WITHOUT], ids=["alone", "with all"])
@pytest.mark.parametrize(
    "names", [("low.weight", "low.bias"), ("middle.weight", "middle.bias"), ("low.weight", "head.bias")]
)
def test_other_gradients_stay_the_same_bits(names, table):
    """And frozen weights' have no place: what lies there stays as it was."""
    whole, found = gradients(()), gradients(names, table)
    for name, gradient in found.items():
        if name in names:
            assert np.isnan(gradient).all(), name
        else:
            np.testing.assert_array_equal(gradient, whole[name], err_msg=name)


def test_a_graph_whose_weights_are_all_frozen():
    names = [f"{node}.{key}" for node in ("low", "middle", "head") for key in ("weight", "bias")]
    with pytest.raises(ShapeError, match="no weight leads to it"):
        compile_steps(frozen(net(), names), training=True)


def normed(names: Collection[str]) -> Graph:
    """image -> conv -> batch norm -> dense -> loss"""
    graph = Graph()
    x = ops.batch_norm(ops.conv2d(graph.input("image", (3, 2, 5, 5)), 4, 3, name="conv"), name="norm")
    return frozen(losses(graph, ops.dense(ops.flatten(x), 4, name="head")), names)


def test_a_batch_norm_is_frozen_with_its_weights():
    (_, some, *_), (_, both, *_) = (normed(names).nodes for names in (["norm.weight"], ["norm.weight", "norm.bias"]))
    assert (some.op.frozen, both.op.frozen) == (False, True)
    assert {statistic.trained for statistic in both.statistics.values()} == {False}
    graph, kernels = normed(["norm.weight", "norm.bias"]), Kernels(OPERATORS)
    layout, statistics = choose_layout(graph, kernels), np.full(32, 2.0)
    plan = compile_plan(graph, layout, kernels, "float64", training=True)
    bound = plan.bind(initial_weights(layout, 0, "float64"), np.zeros(layout.size), statistics)
    bound.run()
    np.testing.assert_array_equal(statistics, 2.0)
