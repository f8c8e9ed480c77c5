"""Graphs: names, shapes, and every error in full."""

import pytest

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Graph, Tensor
from mpibow.graph.steps import Sum, compile_steps
from tests.refusals import refuses


def image(graph: Graph) -> Tensor:
    return graph.input("image", (2, 3, 8, 8))


def vector(graph: Graph) -> Tensor:
    return graph.input("x", (2, 3))


def label(graph: Graph, n: int = 2) -> Tensor:
    return graph.input("label", (n,), "int32")


ERRORS = {
    "dense of a column": (
        lambda g, x: ops.dense(g.input("column", (2,)), 4),
        "dense1 (dense of column (2,)): input must be (batch, ..., features)",
    ),
    "dense without units": (
        lambda g, x: ops.dense(vector(g), 0),
        "dense1: every extent must be an integer of at least 1 and below 2**31, got (2, 0)",
    ),
    "conv of a vector": (
        lambda g, x: ops.conv2d(vector(g), 4, 3),
        "conv1 (conv of x (2, 3)): input must be (batch, channels, height, width)",
    ),
    "conv without channels": (
        lambda g, x: ops.conv2d(x, 0, 3),
        "conv2d of image: channels must be at least 1, got 0",
    ),
    "conv with a kernel of 0": (
        lambda g, x: ops.conv2d(x, 4, (3, 0)),
        "conv1 (conv of image (2, 3, 8, 8)): kernel (3, 0) and stride (1, 1) must be at least 1, padding (0, 0) "
        "at least 0",
    ),
    "a window higher than the image": (
        lambda g, x: ops.conv2d(x, 4, (11, 3), padding=1, name="wide"),
        "wide (conv of image (2, 3, 8, 8)): a window of 11x3 does not fit into 10x10",
    ),
    "dropout of all": (
        lambda g, x: ops.dropout(x, 1.0),
        "dropout of image: rate must be in [0, 1), got 1.0",
    ),
    "dropout with another counter": (
        lambda g, x: ops.Dropout(0.5)(x, g.input("numbers", (2, 3), "uint32")),
        "dropout1 (dropout of image (2, 3, 8, 8), numbers (2, 3)): the counter must be (batch, 4)",
    ),
    "flatten of one axis": (
        lambda g, x: ops.flatten(label(g)),
        "flatten1 (flatten of label (2,)): input must have a batch axis and at least one more",
    ),
    "means of another number of channels": (
        lambda g, x: ops.normalise(x, (0.0, 0.0), (1.0, 1.0, 1.0)),
        "normalise1 (normalise of image (2, 3, 8, 8)): 2 means and 3 standard deviations must be one a channel, "
        "or means one a value",
    ),
    "a standard deviation of 0": (
        lambda g, x: ops.normalise(x, (0.0,) * 3, (1.0, 0.0, 2.0)),
        "normalise1 (normalise of image (2, 3, 8, 8)): standard deviations must be above 0, got 0.0",
    ),
    "loss of an image": (
        lambda g, x: ops.softmax_cross_entropy(x, label(g)),
        "softmax_cross_entropy1 (softmax_cross_entropy of image (2, 3, 8, 8), label (2,)): "
        "logits must be (batch, classes) and labels (batch,)",
    ),
    "a sum of different shapes": (
        lambda g, x: Sum()(x, vector(g)),
        "sum1 (sum of image (2, 3, 8, 8), x (2, 3)): all inputs must have one shape",
    ),
    "a name that is taken": (
        lambda g, x: ops.relu(ops.relu(x, name="a"), name="a"),
        "a: this graph already has a tensor of that name; give this one another name=",
    ),
    "a name that an input has": (
        lambda g, x: ops.relu(x, name="image"),
        "image: this graph already has an input of that name; give this one another name=",
    ),
    "an input of another shape": (
        lambda g, x: g.input("image", (4, 3, 8, 8)),
        "input image: is already a tensor of (2, 3, 8, 8) float, got (4, 3, 8, 8) float",
    ),
    "an input of extent 0": (
        lambda g, x: g.input("y", (0, 3)),
        "y: every extent must be an integer of at least 1 and below 2**31, got (0, 3)",
    ),
    "two outputs of one name": (
        lambda g, x: (g.output("y", x), g.output("y", x)),
        "output y: is already image",
    ),
    "training without a loss": (
        lambda g, x: compile_steps(g, training=True),
        "a training plan needs an output named 'loss': graph.output('loss', tensor)",
    ),
    "training without weights": (
        lambda g, x: (g.output("loss", ops.relu(x)), compile_steps(g, training=True)),
        "loss relu1: no weight leads to it, so there is nothing to train",
    ),
    "training of what has no gradient": (
        lambda g, x: (
            g.output("loss", ops.accuracy(ops.dense(vector(g), 3), label(g))),
            compile_steps(g, training=True),
        ),
        "loss accuracy1: no weight leads to it, so there is nothing to train",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_error(case):
    make, message = ERRORS[case]
    graph = Graph()
    with refuses(message, ShapeError):
        make(graph, image(graph))


def test_a_tensor_of_another_graph():
    one, other = Graph(), Graph()
    with refuses("sum1: image belongs to another graph", ShapeError):
        Sum()(vector(one), image(other))


@pytest.mark.parametrize("name", ["x", "relu1"])
def test_a_node_that_is_refused_leaves_no_trace(name):
    graph = Graph()
    ops.relu(vector(graph))
    with pytest.raises(ShapeError, match=f"^{name}: this graph already has"):
        ops.tanh(vector(graph), name=name)
    assert [node.name for node in graph.nodes] == ["relu1"]
    assert list(graph.tensors) == ["x", "relu1"]


def test_names_and_shapes():
    graph = Graph()
    x = ops.conv2d(image(graph), 5, 3, stride=(2, 1), padding=(1, 0))
    assert (x.name, x.shape) == ("conv1", (2, 5, 4, 6))
    x = ops.max_pool2d(x, (2, 3), stride=(1, 2))
    assert (x.name, x.shape) == ("max_pool1", (2, 5, 3, 2))
    x = ops.avg_pool2d(ops.conv2d(x, 7, (1, 2), name="named"), (2, 1))
    assert (x.name, x.shape) == ("avg_pool1", (2, 7, 1, 1))
    x = ops.dense(ops.flatten(x), 4)
    assert (x.name, x.shape) == ("dense1", (2, 4))
    assert ops.conv2d(image(graph), 1, 8).name == "conv2"
    assert [node.name for node in graph.nodes][:3] == ["conv1", "max_pool1", "named"]
    assert graph.nodes[-1].inputs == ("image",)


def test_weights_and_their_fans():
    graph = Graph()
    ops.conv2d(image(graph), 5, (3, 2), name="conv")
    ops.dense(vector(graph), 4, bias=False, name="dense")
    conv, dense = (node.weights for node in graph.nodes)
    assert {key: (w.shape, w.fan_in, w.fan_out, w.decay) for key, w in conv.items()} == {
        "weight": ((5, 3, 3, 2), 18, 30, True),
        "bias": ((5,), 18, 30, False),
    }
    assert {key: (w.shape, w.fan_in, w.fan_out) for key, w in dense.items()} == {"weight": ((4, 3), 3, 4)}
    assert graph.weight_count == 90 + 5 + 12


def test_asking_again_for_an_input_gives_the_same():
    graph = Graph()
    assert image(graph) is image(graph)
    assert graph.inputs == ["image"]


def test_dropouts_of_one_graph_share_the_counter():
    graph = Graph()
    ops.dropout(ops.dropout(vector(graph)), 0.2)
    assert graph.inputs == ["x", "counter"]
    assert graph.tensors["counter"].shape == (2, 4)
    assert graph.tensors["counter"].dtype == "uint32"


def test_outputs():
    graph = Graph()
    x = graph.output("y", ops.relu(vector(graph)))
    assert x.name == "relu1"
    assert graph.outputs == {"y": "relu1"}


def described(graph: Graph) -> dict[str, tuple]:
    return {name: (tensor.name, tensor.shape, tensor.dtype) for name, tensor in graph.tensors.items()}


def test_signs_between_tensors_are_operators():
    graph, named = Graph(), Graph()
    x, y = vector(graph), graph.input("y", (2, 3))
    (x + y) * x - y
    u, v = vector(named), named.input("y", (2, 3))
    ops.add(ops.multiply(ops.add(u, v), u), v, coefficients=(1, -1))
    assert graph.nodes == named.nodes
    assert described(graph) == described(named)


def test_signs_broadcast():
    graph = Graph()
    y = graph.input("x", (2, 1, 3)) * graph.input("y", (4, 1)) + graph.input("z", (3,))
    assert y.shape == (2, 4, 3)
    assert [node.op.kind for node in graph.nodes] == ["expand", "expand", "multiply", "expand", "add"]


def test_signs_want_shapes_that_can_be_broadcast():
    graph = Graph()
    with refuses("x (2, 3) and image (2, 3, 8, 8): cannot be broadcast to one shape", ShapeError):
        vector(graph) * image(graph)
