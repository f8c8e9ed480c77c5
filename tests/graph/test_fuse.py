"""Fusion replaces chains whose inner values nobody else sees, and leaves all others."""

from mpibow import ops
from mpibow.graph import Graph, Op, Tensor
from mpibow.graph.rewrite import fuse
from mpibow.ops.fused import AddRelu, NormAddRelu


def norm_add_relu(chain: tuple[Op, ...]) -> Op | None:
    match chain:
        case (ops.BatchNorm() as norm, ops.Relu()):
            return NormAddRelu(norm, added=False)
        case (ops.BatchNorm() as norm, ops.Add((1.0, 1.0)), ops.Relu()):
            return NormAddRelu(norm, added=True)
        case (ops.Add((1.0, 1.0)), ops.Relu()):
            return AddRelu()
    return None


def fused(graph: Graph) -> list[tuple[str, str, tuple[str, ...]]]:
    found = fuse(graph, [norm_add_relu], longest=3)
    assert found.outputs == graph.outputs
    assert {n.full(k) for n in found.nodes for k in n.weights} == {n.full(k) for n in graph.nodes for k in n.weights}
    return [(node.name, node.op.kind, node.inputs) for node in found.nodes]


def begun() -> tuple[Graph, Tensor]:
    graph = Graph()
    return graph, graph.input("x", (2, 4, 3, 3))


def test_the_longest_chain_wins_and_keeps_names():
    graph, x = begun()
    y = ops.relu(ops.batch_norm(x))
    z = ops.relu(ops.add(ops.batch_norm(y), y))
    graph.output("out", z)
    assert fused(graph) == [("relu1", "norm+add+relu", ("x",)), ("relu2", "norm+add+relu", ("relu1", "relu1"))]
    assert fuse(graph, [norm_add_relu], 3).nodes[1].full("weight") == "batch_norm2.weight"


def test_two_norms_into_one_sum_fuse_once():
    graph, x = begun()
    z = ops.relu(ops.add(ops.batch_norm(x), ops.batch_norm(x)))
    graph.output("out", z)
    assert fused(graph) == [("batch_norm2", "batch_norm", ("x",)), ("relu1", "norm+add+relu", ("x", "batch_norm2"))]


def test_what_others_see_stays():
    graph, x = begun()
    seen = ops.batch_norm(x)
    graph.output("shown", seen)
    twice = ops.batch_norm(ops.relu(seen))
    graph.output("out", ops.multiply(ops.relu(twice), twice))
    assert [kind for _, kind, _ in fused(graph)] == ["batch_norm", "relu", "batch_norm", "relu", "multiply"]


def test_a_sum_of_a_value_with_itself():
    graph, x = begun()
    y = ops.batch_norm(x)
    graph.output("out", ops.relu(ops.add(y, y)))
    assert fused(graph) == [
        ("batch_norm1", "batch_norm", ("x",)),
        ("relu1", "add+relu", ("batch_norm1", "batch_norm1")),
    ]
