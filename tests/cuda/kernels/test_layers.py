"""Layers as cuDNN is told to compute them, computed by NumPy from the same specs: against the reference kernels."""

from collections.abc import Callable, Collection

import numpy as np
import pytest

from mpibow.cuda.kernels.operands import PRECISIONS
from mpibow.graph import (
    Array,
    Graph,
    Kernels,
    Tensor,
    choose_layout,
    compile_plan,
    initial_weights,
    plan_layout,
    plan_statistics,
)
from mpibow.graph.rewrite import frozen
from mpibow.kernels.numpy import OPERATORS
from mpibow.ops import (
    Conv2d,
    Dense,
    add,
    batch_norm,
    conv2d,
    dense,
    flatten,
    global_avg_pool2d,
    relu,
    softmax_cross_entropy,
)
from tests.cuda.kernels.in_numpy import host_kernels

REFERENCE = Kernels(OPERATORS)


def basic(x: Tensor) -> Tensor:
    y = relu(batch_norm(conv2d(x, 8, 3, padding=1, bias=False)))
    z = batch_norm(conv2d(y, 16, 3, stride=2, padding=1, bias=False))
    short = batch_norm(conv2d(y, 16, 1, stride=2, bias=False))
    return relu(add(z, short))


def plain(x: Tensor) -> Tensor:
    y = relu(conv2d(x, 4, (3, 2), stride=(2, 1), padding=(1, 0)))
    return conv2d(y, 6, 2)


def in_groups(x: Tensor) -> Tensor:
    y = relu(conv2d(x, 6, 3, padding=2, dilation=2))
    y = conv2d(y, 8, 3, groups=2, bias=False)
    return relu(conv2d(y, 8, 3, padding=1, groups=8))


def no_relu(x: Tensor) -> Tensor:
    y = batch_norm(conv2d(x, 8, 3))
    return add(y, relu(y))


def dead_end(x: Tensor) -> Tensor:
    """A norm of which neither input needs a gradient: it writes them all the same."""
    return relu(add(batch_norm(x), x))


NETS = {
    "residual": basic,
    "plain": plain,
    "in groups": in_groups,
    "no relu": no_relu,
    "dead end": dead_end,
}


def graph_of(net: Callable[[Tensor], Tensor], n: int = 3) -> Graph:
    graph, channels = Graph(), 8 if net is dead_end else 3
    x, label = graph.input("image", (n, channels, 7, 6)), graph.input("label", (n,), "int32")
    y = net(x)
    hidden = relu(dense(flatten(y), 5))
    logits = graph.output("logits", dense(hidden, 4, bias=False))
    pooled = dense(global_avg_pool2d(y), 4)
    graph.output("loss", softmax_cross_entropy(add(logits, pooled), label))
    return graph


def run(
    graph: Graph, kernels: Kernels, *, training: bool, dtype: str = "float64", names: Collection[str] = ()
) -> dict[str, Array]:
    """Loss, logits, canonical gradients and statistics after two steps on other data, weights `names` being frozen."""
    layout = choose_layout(graph, kernels, training=training)
    named = plan_layout(graph).unpacked(initial_weights(plan_layout(graph), 3, dtype))
    rng = np.random.default_rng(1)
    named = {name: value + 0.1 * rng.standard_normal(value.shape) for name, value in named.items()}
    weights, gradients = layout.packed(named, dtype), np.full(layout.size, np.nan, dtype)
    statistics = initial_weights(plan_statistics(graph), 0, dtype)
    plan = compile_plan(frozen(graph, names), layout, kernels, dtype, training=training)
    bound = plan.bind(weights, gradients, statistics)
    for _ in range(2):
        bound.inputs["image"][...] = rng.standard_normal(bound.inputs["image"].shape)
        bound.inputs["label"][...] = rng.integers(4, size=bound.inputs["label"].shape)
        bound.run()
    found = {key: array.copy() for key, array in bound.outputs.items()}
    found |= {f"running {name}": array for name, array in plan_statistics(graph).unpacked(statistics).items()}
    return found | ({f"d {k}": v for k, v in layout.unpacked(gradients).items()} if training else {})


@pytest.mark.parametrize("name", NETS)
def test_gradients_of_frozen_weights_are_left_out(name):
    """Those of all convolutions and dense layers but the first: all others stay the same bits."""
    graph = graph_of(NETS[name])
    layers = [node for node in graph.nodes if isinstance(node.op, Conv2d | Dense)]
    names = [node.full(key) for node in layers[1:] for key in node.weights]
    kernels, bound = host_kernels(PRECISIONS["fp32"])
    whole, count = run(graph, kernels, training=True), len(bound)
    found, fewer = run(graph, kernels, training=True, names=names), len(bound) - count
    for key in whole:
        expected = np.nan if key.removeprefix("d ") in names else whole[key]
        np.testing.assert_array_equal(found[key], expected, err_msg=key)
    assert fewer < count


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NETS)
def test_layers_do_what_the_reference_does(name, training, precision):
    graph = graph_of(NETS[name])
    kernels, bound = host_kernels(PRECISIONS[precision])
    found, expected = run(graph, kernels, training=training), run(graph, REFERENCE, training=training)
    assert found.keys() == expected.keys()
    for key in expected:  # saved means are float32
        np.testing.assert_allclose(found[key], expected[key], rtol=2e-5, atol=2e-6, err_msg=key)
    kinds = {spec.kind for spec in bound}
    assert ("product" in kinds) == (precision == "tf32")  # exact float32 has convolutions only


def test_gradients_of_16_bits_become_float32():
    """What cuDNN leaves in 16 bits is scratch, cast into the replica's float32: weights of convolutions alone."""
    graph = graph_of(in_groups)
    kernels, bound = host_kernels(PRECISIONS["fp16"])
    found = run(graph, kernels, training=True, dtype="float32")
    expected = run(graph, REFERENCE, training=True, dtype="float32")
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=2e-3, atol=1e-3, err_msg=key)
    casts = [spec for spec in bound if spec.kind == "cast"]
    assert [spec.count for spec in casts] == [8 * 1 * 9, 8 * 3 * 9, 6 * 3 * 9]


def test_relu_and_bias_go_with_their_convolution():
    graph = graph_of(plain)
    kernels, bound = host_kernels(PRECISIONS["tf32"])
    run(graph, kernels, training=True)
    said = [(spec.kind, getattr(spec, "bias", None), getattr(spec, "relu", None)) for spec in bound]
    assert said[:2] == [("conv_forward", True, True), ("conv_forward", True, False)]
    assert said[-5:] == [
        ("relu_backward", None, False),  # the second convolution's: its bias
        ("conv_weights", None, None),
        ("conv_data", None, None),
        ("relu_backward", None, True),
        ("conv_weights", None, None),  # and no data: the first one's input needs no gradient
    ]
