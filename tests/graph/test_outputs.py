"""Nodes of several outputs, weights used at several places, and scopes: in graphs and through whole plans."""

from typing import ClassVar

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph import Call, Graph, Kernel, Kernels, Op, Run, Shape, Tensor, compile_plan, plan_layout
from mpibow.kernels import NUMPY
from mpibow.testing import check_operator
from tests.outcome import outcome


class Powers(Op):
    """x^2 and x^3."""

    kind: ClassVar[str] = "powers"
    reads = "x"

    def infer(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def outputs(self, *shapes: Shape) -> tuple[Shape, ...]:
        return shapes[0], shapes[0]


def forward(call: Call) -> Run:
    (x,), (square, cube) = call.x, call.ys

    def run() -> None:
        square[...] = x**2
        cube[...] = x**3

    return run


def backward(call: Call) -> Run:
    (x,), (dx,), (d2, d3) = call.x, call.dx, call.dys

    def run() -> None:
        dx[...] = 2 * x * d2 + 3 * x**2 * d3

    return run


KERNELS = Kernels({**NUMPY.operators, Powers: Kernel(forward, backward)})


@pytest.mark.parametrize("used", ["both", "the first", "the second", "the second, twice"])
def test_the_gradient_of_several_outputs(used):
    graph = Graph()
    x = mb.parameter((2, 3), initial=lambda *_: np.arange(1.0, 7.0).reshape(2, 3), name="x")
    square, cube = graph.add_all(Powers(), x)
    assert (square.name, cube.name, cube.shape) == ("powers1", "powers1.1", (2, 3))
    loss = {
        "both": lambda: square + cube,
        "the first": lambda: mb.relu(square),
        "the second": lambda: mb.relu(cube),
        "the second, twice": lambda: cube * cube,
    }[used]()
    graph.output("loss", loss)
    x0 = np.arange(1.0, 7.0).reshape(2, 3)
    expected = {
        "both": 2 * x0 + 3 * x0**2,
        "the first": 2 * x0,
        "the second": 3 * x0**2,
        "the second, twice": 6 * x0**5,
    }[used]
    np.testing.assert_allclose(outcome(graph, {}, KERNELS)[1]["d x.weight"], expected / 6)


def test_several_outputs_are_outputs_of_a_graph():
    graph = Graph()
    square, cube = graph.add_all(Powers(), graph.input("x", (4,)))
    graph.output("square", square)
    graph.output("cube", cube)
    _, found = outcome(graph, {"x": [1, 2, 3, 4]}, KERNELS, training=False)
    assert found["square"].tolist() == [1, 4, 9, 16]
    assert found["cube"].tolist() == [1, 8, 27, 64]


def test_a_weight_at_two_places_has_the_sum_of_both_gradients():
    def shared(x: Tensor) -> Tensor:
        w = mb.parameter((3, 2), initial=mb.Xavier())
        return w * w + mb.tanh(w * x)

    check_operator(shared, (3, 2))


def test_a_weight_under_another_shape():
    check_operator(lambda x: mb.flatten(mb.parameter((3, 2, 2), initial=mb.He())) * x, (3, 4))


def test_a_parameter_is_a_view_of_the_replica():
    """No kernel runs forward, and the arena has no copy."""
    graph = Graph()
    w = mb.parameter(5, initial=mb.Constant(2.0), decay=False, name="scale")
    graph.output("y", w * graph.input("x", (5,)))
    layout = plan_layout(graph)
    assert [(span.name, span.shape) for span in layout.spans] == [("scale.weight", (5,))]
    assert layout.decayed == 0
    plan = compile_plan(graph, layout, NUMPY, "float32", training=False)
    assert [step.node.op.kind for step in plan.program.steps] == ["multiply"]
    assert plan.offsets.keys() == {"multiply1"}


def test_scopes_name_nodes_and_weights():
    def net(blocks: int) -> list[str]:
        graph = Graph()
        x = graph.input("x", (2, 4))
        for i in range(blocks):
            with mb.scope(f"block{i}"):
                x = mb.relu(mb.dense(x, 4))
                with mb.scope("head"):
                    x = mb.dense(x, 4, name="out")
        mb.dense(x, 2)
        return [node.full(key) for node in graph.nodes for key in node.weights if key == "weight"]

    one, two = net(1), net(2)
    assert one == ["block0.dense1.weight", "block0.head.out.weight", "dense1.weight"]
    assert two == [*one[:2], "block1.dense1.weight", "block1.head.out.weight", "dense1.weight"]


def test_a_scope_that_is_left_by_an_error_is_left():
    with pytest.raises(RuntimeError), mb.scope("broken"):
        raise RuntimeError
    graph = Graph()
    assert mb.relu(graph.input("x", (1,))).name == "relu1"


def test_a_scope_without_a_name():
    with pytest.raises(ShapeError) as error, mb.scope("two words"):
        pass
    assert str(error.value) == "scope 'two words': a name begins with a letter, then letters, digits, _, - and . follow"
