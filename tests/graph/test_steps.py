"""Steps: the order of forward and backward, what each reads and writes, and how gradients are joined."""

import pytest

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Array, Graph, Tensor
from mpibow.graph.rewrite import frozen
from mpibow.graph.steps import Program, compile_steps
from tests.graph.product import product


def losses(graph: Graph, logits: Tensor) -> Graph:
    graph.output("loss", ops.softmax_cross_entropy(logits, graph.input("label", (logits.shape[0],), "int32")))
    return graph


def small() -> Graph:
    """image -> flatten -> dense -> relu -> dense -> loss and accuracy"""
    graph = Graph()
    x = ops.relu(ops.dense(ops.flatten(graph.input("image", (2, 1, 3))), 4))
    logits = ops.dense(x, 3)
    graph.output("accuracy", ops.accuracy(logits, graph.input("label", (2,), "int32")))
    return losses(graph, logits)


def forked() -> Graph:
    """a = dense(x), used by relu and tanh, which a product joins."""
    graph = Graph()
    a = ops.dense(graph.input("x", (2, 3)), 3, name="a")
    return losses(graph, product(ops.relu(a), ops.tanh(a)))


def lines(program: Program) -> list[str]:
    return [f"{s.kind} {s.node.name}: {', '.join(s.writes)} <- {', '.join(s.reads)}" for s in program.steps]


FORWARD = [
    "forward dense1: dense1 <- flatten1",
    "forward relu1: relu1 <- dense1",
    "forward dense2: dense2 <- relu1",
    "forward accuracy1: accuracy1 <- dense2, label",
    "forward softmax_cross_entropy1: softmax_cross_entropy1 <- dense2, label",
]


def test_training_steps():
    part = "d dense2 from softmax_cross_entropy1[0]"
    assert lines(compile_steps(small(), training=True)) == [
        *FORWARD,
        f"backward softmax_cross_entropy1: {part} <- d softmax_cross_entropy1",
        "backward dense2: d relu1 <- d dense2, relu1",
        "backward relu1: d dense1 <- d relu1, relu1",
        "backward dense1:  <- d dense1, flatten1",
    ]


def test_evaluation_steps_are_the_forward_ones():
    assert lines(compile_steps(small(), training=False)) == FORWARD


def test_a_view_has_no_step_and_shares_its_inputs_memory():
    program = compile_steps(small(), training=True)
    assert program.values["flatten1"].base == "image"
    assert program.root("flatten1") == "image"
    assert program.values["flatten1"].shape == (2, 3)


def test_one_contribution_among_two_uses_is_the_gradient_itself():
    program = compile_steps(small(), training=True)
    assert program.root("d dense2") == "d dense2 from softmax_cross_entropy1[0]"
    assert not any(step.kind == "sum" for step in program.steps)


def test_the_losss_gradient_is_that_of_a_mean():
    program = compile_steps(small(), training=True)
    assert program.values["d softmax_cross_entropy1"].constant == 0.5
    assert [v.name for v in program.values.values() if v.constant is not None] == ["d softmax_cross_entropy1"]


def test_a_fork_is_joined_by_a_sum_before_its_node_runs_back():
    parts = "d a from tanh1[0], d a from relu1[0]"
    assert lines(compile_steps(forked(), training=True))[5:] == [
        "backward softmax_cross_entropy1: d product1 <- d softmax_cross_entropy1",
        "backward product1: d relu1, d tanh1 <- d product1, relu1, tanh1",
        "backward tanh1: d a from tanh1[0] <- d tanh1, tanh1",
        "backward relu1: d a from relu1[0] <- d relu1, relu1",
        f"sum d a: d a <- {parts}",
        "backward a:  <- d a, x",
    ]


def test_a_node_that_reads_one_value_twice_contributes_twice():
    graph = Graph()
    a = ops.dense(graph.input("x", (2, 3)), 3, name="a")
    steps = lines(compile_steps(losses(graph, product(a, a)), training=True))
    assert "sum d a: d a <- d a from product1[0], d a from product1[1]" in steps


def test_no_gradient_flows_to_inputs_or_past_what_has_none():
    graph = Graph()
    image = ops.normalise(graph.input("image", (2, 3), "uint8"), (0.0,) * 3, (1.0,) * 3)
    a = ops.dense(image, 3, name="a")
    program = compile_steps(losses(graph, product(a, image)), training=True)
    (step,) = (step for step in program.steps if step.node.name == "product1" and step.kind == "backward")
    assert step.writes == ("d a",)
    assert step.wanted == (0,)
    assert not any("normalise1" in step.node.name for step in program.steps if step.kind == "backward")


def _forward_only(x: Array) -> Array:
    return x


LABELS, OWN = (0, 1), ops.operator("own", _forward_only)
WITHOUT = {
    "soft_cross_entropy": lambda x: ops.soft_cross_entropy(x, ops.softmax(x)),
    "counted_mean": lambda x: ops.counted_mean(ops.sum(x, axis=1), ops.mean(x, axis=1)),
    "matrix_factorisation": lambda x: ops.matrix_factorisation(
        ops.constant(LABELS), ops.constant(LABELS), ops.mean(x, axis=1), users=2, items=2, factors=2
    ),
    "normalise": lambda x: ops.mean(ops.normalise(x, (0.0,) * 3, (1.0,) * 3), axis=1),
    "mix": lambda x: ops.mean(ops.mix(x, ops.constant((0.5, 0.5))), axis=1),
    "accuracy": lambda x: ops.accuracy(x, ops.constant(LABELS)) * ops.mean(x, axis=1),
    "own": lambda x: ops.mean(OWN(x), axis=1),
}


@pytest.mark.parametrize("kind", WITHOUT)
def test_a_gradient_that_a_weight_needs_and_that_an_operator_lacks_is_refused(kind):
    graph = Graph()
    x = ops.dense(graph.input("x", (2, 3)), 3, name="net")
    graph.output("loss", WITHOUT[kind](x))
    if kind == "accuracy":  # flat by definition, as a comparison is
        assert compile_steps(graph, training=True)
        return
    compile_steps(graph, training=False)
    rule = (
        rf"^{kind}1 \({kind}\): has no gradient for (\w+), which depends on weights that are trained; mb.detach\(\1\)"
    )
    with pytest.raises(ShapeError, match=rule):
        compile_steps(graph, training=True)


@pytest.mark.parametrize("names", [(), ("other.weight", "other.bias")])
def test_what_is_detached_or_frozen_needs_no_gradient(names):
    graph = Graph()
    x, other = (ops.dense(graph.input("x", (2, 3)), 3, name=name) for name in ("net", "other"))
    graph.output("loss", ops.soft_cross_entropy(x, ops.softmax(other if names else ops.detach(other))))
    program = compile_steps(frozen(graph, names), training=True)
    assert [s.node.name for s in program.steps if s.kind == "backward"] == ["soft_cross_entropy1", "net"]


def test_a_branch_that_the_loss_does_not_see_has_no_backward():
    graph = Graph()
    a = ops.dense(graph.input("x", (2, 3)), 3, name="a")
    ops.tanh(ops.dense(a, 4, name="aside"))
    program = compile_steps(losses(graph, a), training=True)
    assert [s.node.name for s in program.steps if s.kind == "backward"] == ["softmax_cross_entropy1", "a"]


def test_gradients_run_through_views_both_ways():
    graph = Graph()
    image = ops.conv2d(graph.input("image", (2, 1, 3, 3)), 2, 3, name="conv")
    program = compile_steps(losses(graph, ops.dropout(ops.flatten(image), 0.0)), training=True)
    assert program.values["dropout1"].base == "flatten1"
    assert program.root("dropout1") == "conv"
    assert program.root("d conv") == "d dropout1"
    assert program.values["d conv"].shape == (2, 2, 1, 1)


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_a_view_in_evaluation_only(training):
    graph = Graph()
    x = ops.dropout(ops.dense(graph.input("x", (2, 3)), 3, name="a"), 0.5)
    program = compile_steps(losses(graph, x), training)
    assert program.root("dropout1") == ("dropout1" if training else "a")
