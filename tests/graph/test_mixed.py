"""What of a graph is float32 where a plan computes in 16 bits, and where numbers are converted."""

from mpibow import ops
from mpibow.graph import FLOAT, Graph, Tensor
from mpibow.graph.rewrite import WIDE, Convert, Widths, mixed
from mpibow.graph.steps import Program, compile_steps, widened
from mpibow.ops import Dense, Mix, Normalise, SoftCrossEntropy

WIDTHS = Widths(wide=(SoftCrossEntropy,), narrow=(Dense, Normalise), leading=(Mix,))


def rewritten(build) -> tuple[Graph, Program]:
    """The graph that `build(graph)` gives the loss of, for 16 bits; and its program."""
    graph = Graph()
    graph.output("loss", build(graph))
    found = mixed(graph, WIDTHS, training=True)
    return found, widened(compile_steps(found, training=True), WIDTHS)


def lines(graph: Graph) -> list[str]:
    return [f"{node.name} <- {', '.join(node.inputs)}" for node in graph.nodes]


def wide(program: Program) -> list[str]:
    """What a step writes in float32, weights' gradients aside."""
    return [name for step in program.steps for name in step.writes if program.values[name].dtype == WIDE]


def soft(graph: Graph) -> Tensor:
    x, target = graph.input("x", (2, 3)), graph.input("target", (2, 4))
    return ops.soft_cross_entropy(ops.dense(ops.add(x, ops.dense(x, 3)), 4), target)


def test_inputs_are_float32_and_converted_once_for_all_that_computes_in_16_bits():
    graph, program = rewritten(soft)
    assert {name: graph.tensors[name].dtype for name in graph.inputs} == {"x": WIDE, "target": WIDE}
    assert lines(graph) == [
        "x in 16 bits <- x",
        "dense1 <- x in 16 bits",
        "add1 <- x in 16 bits, dense1",
        "dense2 <- add1",
        "soft_cross_entropy1 <- dense2, target",
    ]
    assert wide(program) == ["soft_cross_entropy1"]
    assert program.values["d soft_cross_entropy1"].dtype == WIDE
    assert program.values["d dense2"].dtype == FLOAT


def test_the_input_of_a_view_is_converted_behind_it():
    def build(graph: Graph) -> Tensor:
        target = ops.flatten(graph.input("target", (2, 2, 2)))
        return ops.soft_cross_entropy(ops.dense(ops.flatten(graph.input("x", (2, 3, 1))), 4), target)

    graph, program = rewritten(build)
    assert "flatten2 in 16 bits <- flatten2" in lines(graph)
    assert "soft_cross_entropy1 <- dense1, flatten1" in lines(graph)
    assert program.values["flatten1"].dtype == WIDE


def test_what_scales_stored_numbers_reads_them_as_they_are():
    def build(graph: Graph) -> Tensor:
        x = ops.normalise(graph.input("image", (2, 3), "float32"), (0.0,) * 3, (1.0,) * 3)
        return ops.soft_cross_entropy(ops.dense(x, 4), graph.input("target", (2, 4)))

    graph, program = rewritten(build)
    assert not [node for node in graph.nodes if isinstance(node.op, Convert)]
    assert program.values["normalise1"].dtype == FLOAT


def test_what_is_made_of_float32_alone_is_float32():
    def build(graph: Graph) -> Tensor:
        return ops.multiply(soft(graph), graph.input("weight", (2,)))

    graph, program = rewritten(build)
    assert lines(graph)[-1] == "multiply1 <- soft_cross_entropy1, weight"
    assert wide(program) == ["soft_cross_entropy1", "multiply1", "d soft_cross_entropy1"]


def test_what_is_mixed_is_of_the_type_that_it_was():
    def build(graph: Graph) -> Tensor:
        share = graph.input("share", (2,))
        x = ops.normalise(graph.input("image", (2, 3), "uint8"), (0.0,) * 3, (1.0,) * 3)
        target = ops.mix(graph.input("target", (2, 4)), share)
        return ops.soft_cross_entropy(ops.dense(ops.mix(x, share), 4), target)

    graph, program = rewritten(build)
    assert not [node for node in graph.nodes if isinstance(node.op, Convert)]
    assert (program.values["mix1"].dtype, program.values["mix2"].dtype) == (WIDE, FLOAT)


def test_what_is_trained_of_float32_has_a_gradient_of_float32():
    def build(graph: Graph) -> Tensor:
        x = ops.dense(ops.layer_norm(graph.input("x", (2, 3))), 4)
        return ops.soft_cross_entropy(x, graph.input("target", (2, 4)))

    graph, program = rewritten(build)
    assert lines(graph)[:3] == [
        "layer_norm1 <- x",
        "layer_norm1 in 16 bits <- layer_norm1",
        "dense1 <- layer_norm1 in 16 bits",
    ]
    assert wide(program) == ["layer_norm1", "soft_cross_entropy1", "d layer_norm1"]


def test_a_target_that_a_net_makes_is_converted():
    def build(graph: Graph) -> Tensor:
        x = ops.dense(graph.input("x", (2, 3)), 4)
        return ops.multiply(ops.soft_cross_entropy(x, ops.detach(ops.softmax(x))), graph.input("weight", (2,)))

    graph, program = rewritten(build)
    assert "soft_cross_entropy1 <- dense1, cast1 in 32 bits" in lines(graph)
    assert program.values["cast1"].dtype == FLOAT
    assert "cast1 in 32 bits" in wide(program)
