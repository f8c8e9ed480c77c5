"""Which weights a product multiplies, and how many operations a pass takes, by hand."""

from mpibow import conv2d, dense, embedding, flatten, layer_norm, lstm, matmul, parameter, relu, transpose
from mpibow.graph import Graph
from mpibow.ops.products import products_of


def test_of_layers():
    graph = Graph()
    x = relu(conv2d(graph.input("image", (2, 3, 8, 8)), 5, 3, name="conv"))  # 2 x 5 x 6 x 6, of 27 each
    dense(flatten(x), 7, name="dense")  # 2 x 7, of 180 each
    found = products_of(graph)
    assert found.wide == ("conv.weight", "dense.weight")
    assert found.factors == {*found.wide}
    assert found.operations == 3 * 2 * (360 * 27 + 14 * 180)


def test_of_tables_and_parameters():
    """A table by its operator; a parameter by what reads it."""
    graph = Graph()
    x = embedding(graph.input("token", (2, 6), "int32"), 11, 4, name="word")
    x = x + parameter((6, 4), name="place")
    x = layer_norm(x, axes=2, name="norm")
    x = matmul(x, transpose(parameter((5, 4), name="mixing"), 0, 1))  # 12 x 5, of 4 each
    lstm(x, 3, name="memory")  # 12 steps, of 12 x 5 and 12 x 3
    found = products_of(graph)
    assert found.wide == ("word.weight", "place.weight", "mixing.weight", "memory.weight_ih_l0", "memory.weight_hh_l0")
    assert found.factors == {"mixing.weight", "memory.weight_ih_l0", "memory.weight_hh_l0"}
    assert found.operations == 3 * 2 * (60 * 4 + 12 * (60 + 36))
