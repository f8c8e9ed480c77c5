"""Plans: whole models against finite differences, and what a plan promises about memory."""

from functools import partial

import numpy as np
import pytest

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import (
    Array,
    Graph,
    Kernel,
    Kernels,
    Layout,
    Plan,
    Tensor,
    choose_layout,
    compile_plan,
    initial_weights,
    plan_layout,
)
from mpibow.graph.bound import BoundPlan
from mpibow.graph.steps import Sum
from mpibow.kernels.numpy import OPERATORS
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from tests.allocations import allocated
from tests.graph.product import KERNEL, Product, product
from tests.refusals import refuses

TABLE = {**OPERATORS, Product: KERNEL}


def forked_net(image: Tensor) -> Tensor:
    """Values used two and three times, and a product with itself."""
    a = ops.dense(ops.flatten(image), 6)
    b = product(ops.sigmoid(a), ops.tanh(a))
    c = product(product(b, b), ops.relu(a))
    return ops.dense(product(c, b), 4)


def joined_net(image: Tensor) -> Tensor:
    """Branches that are joined in every way that there is; one value is used three times, one twice by one node."""
    x = ops.conv2d(image, 4, 3, padding=1)
    x = ops.local_response_norm(ops.leaky_relu(x), 3, alpha=0.5)
    a = ops.max_pool2d(x, 3, stride=2, padding=1)
    b = ops.avg_pool2d(x, 3, stride=2, padding=1, count_padding=False)
    c = ops.conv2d(x, 4, 3, stride=2, padding=2, dilation=2, groups=2)
    y = ops.concat(ops.add(a, b, coefficients=[1.0, -0.5]), ops.maximum(a, c), ops.multiply(b, c), ops.multiply(a, a))
    y = ops.layer_norm(ops.dense(ops.flatten(ops.adaptive_avg_pool2d(ops.clipped_relu(y), (2, 3))), 6))
    return ops.dense(ops.add(ops.gelu(y), ops.gelu(y, tanh=True)), 4)


NETS = {"forked": forked_net, "joined": joined_net}


def built(name: str, batch: int, dtype: str = "float", **options) -> Graph:
    shape = (1, 28, 28) if name == "lenet" else (2, 6, 6)
    net = NETS[name] if name in NETS else partial(MODELS[name], classes=4, **options)
    return classifier(net, shape, dtype, mean=(1.0,) * shape[0], std=(2.0,) * shape[0])(batch)


def bound(
    graph: Graph, dtype: str = "float64", training: bool = True, seed: int = 1
) -> tuple[BoundPlan, Array, Array, Layout]:
    """The graph's plan with weights of its own, all moved off their start so that no bias is 0."""
    layout = plan_layout(graph)
    weights = initial_weights(layout, seed, dtype)
    generator = np.random.default_rng(seed)
    for view in layout.views(weights).values():
        view += 0.1 * generator.standard_normal(view.shape)
    gradients = np.zeros_like(weights)
    plan = compile_plan(graph, layout, Kernels(TABLE), dtype, training=training)
    return plan.bind(weights, gradients if training else None), weights, gradients, layout


def feed(plan: BoundPlan, seed: int = 2, start: int = 0) -> None:
    """Sample number i of the batch is always the same, whatever the batch."""
    for i in range(len(plan.inputs["label"])):
        generator = np.random.default_rng([seed, start + i])
        image = plan.inputs["image"][i]
        image[...] = (
            generator.integers(0, 256, image.shape) if image.dtype == np.uint8 else generator.normal(size=image.shape)
        )
        plan.inputs["label"][i] = generator.integers(0, 4)
        if "counter" in plan.inputs:
            plan.inputs["counter"][i] = (7, 3, start + i, 0)


GRAPHS = {
    "logistic": ("logistic", {}),
    "mlp": ("mlp", {"hidden": [9, 7]}),
    "convnet": ("convnet", {"channels": 3}),
    "lenet": ("lenet", {}),
    "forked": ("forked", {}),
    "joined": ("joined", {}),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_gradient_of_the_mean_loss(name):
    model, options = GRAPHS[name]
    plan, weights, gradients, layout = bound(built(model, 3, **options))
    feed(plan)
    generator = np.random.default_rng(3)
    for span in layout.spans:  # one direction a weight: nothing can hide
        direction = np.zeros_like(weights)
        part = slice(span.offset, span.offset + span.size)
        direction[part] = generator.standard_normal(span.size)
        values = []
        for step in (1e-6, -1e-6):
            weights += step * direction
            plan.run()
            values.append(plan.outputs["loss"].mean())
            weights -= step * direction
        plan.run()
        expected = (values[0] - values[1]) / 2e-6
        assert gradients @ direction == pytest.approx(expected, rel=2e-5, abs=1e-8), span.name


@pytest.mark.parametrize("name", GRAPHS)
def test_all_weights_have_a_gradient_and_the_padding_has_none(name):
    model, options = GRAPHS[name]
    plan, _, gradients, layout = bound(built(model, 3, **options))
    gradients.fill(np.nan)
    feed(plan)
    plan.run()
    views = layout.views(gradients)
    for key, view in views.items():
        assert np.isfinite(view).all(), key
        assert np.abs(view).max() > 0, key
    assert np.isnan(gradients).sum() == layout.size - sum(view.size for view in views.values())


def test_a_value_used_twice_gets_the_sum_of_its_gradients():
    """d/da of a * a is 2 a: the gradient of a product with itself against one with a constant copy, doubled."""
    graph = Graph()
    a = ops.dense(graph.input("x", (2, 3)), 4, bias=False, name="a")
    graph.output("loss", ops.softmax_cross_entropy(product(a, a), graph.input("label", (2,), "int32")))
    plan, weights, gradients, layout = bound(graph)
    x = np.random.default_rng(0).standard_normal((2, 3))
    plan.inputs["x"][...] = x
    plan.inputs["label"][...] = [1, 3]
    plan.run()
    value = x @ layout.views(weights)["a.weight"].T
    logits = value**2
    probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    probability[[0, 1], [1, 3]] -= 1
    expected = (2 * value * probability / 2).T @ x
    np.testing.assert_allclose(layout.views(gradients)["a.weight"], expected, rtol=1e-12)


def test_a_value_used_three_times():
    graph = Graph()
    a = ops.dense(graph.input("x", (1, 2)), 2, bias=False, name="a")
    joined = product(product(ops.tanh(a), ops.sigmoid(a)), a)
    graph.output("loss", ops.softmax_cross_entropy(joined, graph.input("label", (1,), "int32")))
    plan = bound(graph)[0]
    (join,) = (step for step in plan.plan.program.steps if step.kind == "sum")
    assert len(join.reads) == 3
    assert isinstance(join.node.op, Sum)


def test_a_view_is_the_same_memory():
    graph = Graph()
    x = ops.conv2d(graph.input("image", (2, 1, 4, 4)), 3, 3, name="conv")
    graph.output("image", x)
    graph.output("flat", ops.flatten(x))
    plan = bound(graph, training=False)[0]
    plan.inputs["image"][...] = np.random.default_rng(0).standard_normal((2, 1, 4, 4))
    plan.run()
    assert np.shares_memory(plan.outputs["image"], plan.outputs["flat"])
    np.testing.assert_array_equal(plan.outputs["flat"], plan.outputs["image"].reshape(2, -1))
    assert np.abs(plan.outputs["flat"]).min() > 0


def test_an_output_that_is_a_view_of_an_input():
    graph = Graph()
    graph.output("flat", ops.flatten(graph.input("image", (2, 1, 2))))
    plan = bound(graph, training=False)[0]
    plan.inputs["image"][...] = 3
    plan.run()
    assert (plan.outputs["flat"] == 3).all()
    assert plan.outputs["flat"].shape == (2, 2)


@pytest.mark.parametrize("name", GRAPHS)
def test_evaluation_is_trainings_forward_without_dropout(name):
    model, options = GRAPHS[name]
    options = options | {"drop": 0.0} if model == "lenet" else options
    training, *_ = bound(built(model, 3, **options))
    evaluation, *_ = bound(built(model, 3, **({"drop": 0.4} if model == "lenet" else options)), training=False)
    for plan in (training, evaluation):
        feed(plan)
        plan.run()
    for key in ("loss", "accuracy", "logits"):
        np.testing.assert_array_equal(training.outputs[key], evaluation.outputs[key], err_msg=key)
    assert evaluation.plan.arena_bytes <= training.plan.arena_bytes


def test_dropout_follows_its_counter():
    plan, *_ = bound(built("lenet", 2))
    feed(plan)
    plan.run()
    first = plan.outputs["loss"].copy()
    plan.run()
    np.testing.assert_array_equal(plan.outputs["loss"], first)
    plan.inputs["counter"][:, 1] += 1  # the next epoch
    plan.run()
    assert (plan.outputs["loss"] != first).all()


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("training", [True, False])
def test_a_poisoned_arena_changes_nothing(name, training):
    """Every value is written before it is read, and no two that are alive together share bytes."""
    model, options = GRAPHS[name]
    plan, _, gradients, _ = bound(built(model, 3, **options), training=training)
    feed(plan)
    plan.run()
    loss, first = plan.outputs["loss"].copy(), gradients.copy()
    for poison in (0xFF, 0x7F):  # NaN and all ones; huge numbers
        plan.arena.fill(poison)
        gradients.fill(np.nan)
        gradients[first == 0] = 0  # the padding, which a plan leaves alone
        plan.run()
        np.testing.assert_array_equal(plan.outputs["loss"], loss)
        np.testing.assert_array_equal(gradients, first)


@pytest.mark.parametrize("name", ["mlp", "convnet", "lenet"])
@pytest.mark.parametrize("training", [True, False])
def test_running_allocates_nothing(name, training):
    model, options = GRAPHS[name]
    batch = 128 if name == "lenet" else 1024  # where the smallest array, (batch,), is 4 KB
    plan, *_ = bound(built(model, batch, "uint8", **options), "float32", training)
    feed(plan)
    peak, kept = allocated(plan.run)
    assert peak < 2048, f"{peak} bytes"  # NumPy's iterators; each of our arrays is more
    assert kept < 512, "something is kept"


def test_plans_of_two_batch_sizes_share_the_layout():
    small, large = built("convnet", 2), built("convnet", 6)
    layout = plan_layout(small)
    assert plan_layout(large).digest() == layout.digest()
    weights = initial_weights(layout, 1, "float64")
    gradients = [np.zeros_like(weights) for _ in range(4)]
    whole = compile_plan(large, layout, Kernels(OPERATORS), "float64", training=True).bind(weights, gradients[3])
    feed(whole)
    whole.run()
    for i in range(3):
        part = compile_plan(small, layout, Kernels(OPERATORS), "float64", training=True).bind(weights, gradients[i])
        feed(part, start=2 * i)
        part.run()
        np.testing.assert_allclose(part.outputs["loss"], whole.outputs["loss"][2 * i : 2 * i + 2], rtol=1e-12)
    np.testing.assert_allclose(sum(gradients[:3]) / 3, gradients[3], rtol=1e-10, atol=1e-14)


def test_a_run_reads_the_weights_as_they_are_now():
    plan, weights, *_ = bound(built("mlp", 3), training=False)
    feed(plan)
    weights[:] = 0
    plan.run()
    np.testing.assert_allclose(plan.outputs["loss"], np.log(4))


def test_the_arena_starts_at_a_cache_line():
    for _ in range(8):
        plan, *_ = bound(built("mlp", 1), training=False)
        assert plan.arena.ctypes.data % 64 == 0


def test_weights_and_gradients_are_never_written_and_never_added():
    plan, weights, gradients, _ = bound(built("convnet", 3))
    feed(plan)
    before = weights.copy()
    plan.run()
    first = gradients.copy()
    plan.run()
    np.testing.assert_array_equal(weights, before)
    np.testing.assert_array_equal(gradients, first)


def test_precision():
    single, _, g32, _ = bound(built("convnet", 4), "float32")
    double, _, g64, _ = bound(built("convnet", 4), "float64")
    for plan in (single, double):
        feed(plan)
        plan.run()
    assert single.outputs["loss"].dtype == np.float32
    assert double.outputs["loss"].dtype == np.float64
    np.testing.assert_allclose(single.outputs["loss"], double.outputs["loss"], rtol=1e-5)
    np.testing.assert_allclose(g32, g64, rtol=1e-3, atol=1e-5)  # weights are rounded, and so are sums of 72 products


def plan_of(graph: Graph, training: bool) -> Plan:
    return compile_plan(graph, plan_layout(graph), Kernels(OPERATORS), "float32", training=training)


def tiny() -> Graph:
    return classifier(partial(MODELS["mlp"], classes=3, hidden=[4]), (1, 2, 3), "uint8")(2)


def test_printed_training_plan():
    assert str(plan_of(tiny(), training=True)) == (
        "   0 forward  normalise              normalise1[2, 1, 2, 3]@0x0 <- image\n"
        "   1 forward  dense                  dense1[2, 4]@0x40 <- flatten1\n"
        "   2 forward  relu                   relu1[2, 4]@0x80 <- dense1\n"
        "   3 forward  dense                  dense2[2, 3]@0x100 <- relu1\n"
        "   4 forward  softmax_cross_entropy  softmax_cross_entropy1[2]@0x180 <- dense2, label\n"
        "   5 forward  accuracy               accuracy1[2]@0x1c0 <- dense2, label\n"
        "   6 backward softmax_cross_entropy  d dense2 from softmax_cross_entropy1[0][2, 3]@0xc0"
        " <- d softmax_cross_entropy1\n"
        "   7 backward dense                  d relu1[2, 4]@0x40 <- d dense2, relu1\n"
        "   8 backward relu                   d dense1[2, 4]@0xc0 <- d relu1, relu1\n"
        "   9 backward dense                  weights only <- d dense1, flatten1\n"
        "80 weights as float32; arena 576 bytes, largest sum alive 576, all values 328"
    )


def test_printed_evaluation_plan():
    assert str(plan_of(tiny(), training=False)) == (
        "   0 forward  normalise              normalise1[2, 1, 2, 3]@0x0 <- image\n"
        "   1 forward  dense                  dense1[2, 4]@0x40 <- flatten1\n"
        "   2 forward  relu                   relu1[2, 4]@0x0 <- dense1\n"
        "   3 forward  dense                  dense2[2, 3]@0x40 <- relu1\n"
        "   4 forward  softmax_cross_entropy  softmax_cross_entropy1[2]@0xc0 <- dense2, label\n"
        "   5 forward  accuracy               accuracy1[2]@0x80 <- dense2, label\n"
        "80 weights as float32; arena 384 bytes, largest sum alive 384, all values 224"
    )


@pytest.mark.parametrize("name", GRAPHS)
def test_blocks_alive_together_never_share_bytes(name):
    model, options = GRAPHS[name]
    plan = bound(built(model, 3, **options))[0].plan
    for i, a in enumerate(plan.blocks):
        for b in plan.blocks[:i]:
            if a.first <= b.last and b.first <= a.last:
                start, end = plan.offsets[a.name], plan.offsets[a.name] + a.size
                assert end <= plan.offsets[b.name] or plan.offsets[b.name] + b.size <= start, (a, b)


def test_memory_is_reused():
    plan = bound(built("convnet", 8, channels=16))[0].plan
    assert plan.arena_bytes < 0.7 * sum(block.size for block in plan.blocks)


def test_missing_kernel():
    with refuses(
        "the kernel set has no kernel for accuracy, dense, normalise, relu, softmax_cross_entropy", ShapeError
    ):
        compile_plan(tiny(), plan_layout(tiny()), Kernels({}), "float32", training=False)
    table = {op: kernel for op, kernel in OPERATORS.items() if op not in (ops.Relu, ops.Accuracy)}
    lacking = Kernels(table, lacks="no {}: buy some")
    for training in (True, False):
        with pytest.raises(ShapeError, match="no accuracy, relu: buy some"):
            compile_plan(
                tiny(), plan_layout(tiny()), Kernels(table, lacks="no {}: buy some"), "float32", training=training
            )
    with pytest.raises(ShapeError, match="no accuracy, relu: buy some"):
        choose_layout(tiny(), lacking)


def test_kernel_without_gradient():
    table = {**OPERATORS, ops.Relu: Kernel(OPERATORS[ops.Relu].forward)}
    graph = tiny()
    plan = compile_plan(graph, plan_layout(graph), Kernels(table), "float32", training=True)
    weights = np.zeros(plan.layout.size, np.float32)
    with refuses("relu1: relu has no gradient in this kernel set", ShapeError):
        plan.bind(weights, weights.copy())
