"""Graph -> steps: forward, the backward halves in reverse, and explicit sums where a value is used twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Graph, Node, Op, Shape


@dataclass(frozen=True)
class Sum(Op):
    """y = x0 + x1 + ...: what joins the gradients of a value that is used more than once."""

    kind: ClassVar[str] = "sum"

    def infer(self, *shapes: Shape) -> Shape:
        if not shapes or any(shape != shapes[0] for shape in shapes):
            raise ShapeError("all inputs must have one shape")
        return shapes[0]


@dataclass(frozen=True)
class Value:
    """A named array of the plan. `base` names the value whose memory it shares, '' where it has its own."""

    name: str
    shape: Shape
    dtype: str = FLOAT
    base: str = ""
    constant: float | None = None


@dataclass(frozen=True)
class Step:
    """One kernel's run: `reads` and `writes` are value names (weights and their gradients are not listed).

    A backward step writes the gradients of the node's inputs number `wanted`, in that order.
    """

    kind: Literal["forward", "backward", "sum"]
    node: Node
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    wanted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """The steps of a graph in order, and every value that they name."""

    steps: tuple[Step, ...]
    values: dict[str, Value]

    def root(self, name: str) -> str:
        """The value that owns the memory of `name`."""
        while self.values[name].base:
            name = self.values[name].base
        return name


def gradient(name: str) -> str:
    """The value name of the gradient of `name`."""
    return f"d {name}"


def compile_steps(graph: Graph, training: bool) -> Program:
    """The program of `graph`: forward only, or with the gradients of the mean of its 'loss' output."""
    values = {t.name: Value(t.name, t.shape, t.dtype) for t in graph.tensors.values()}
    steps = []
    for node in graph.nodes:
        if node.op.is_view(training):
            values[node.name] = replace(values[node.name], base=node.inputs[0])
        else:
            steps.append(Step("forward", node, node.inputs, (node.name,)))
    if training:
        steps += _backward(graph, values)
    return Program(tuple(steps), values)


def _backward(graph: Graph, values: dict[str, Value]) -> list[Step]:
    """Reverse mode: a node runs back once the gradient of its output is complete, so the graph's reverse order does."""
    if "loss" not in graph.outputs:
        raise ShapeError("a training plan needs an output named 'loss': graph.output('loss', tensor)")
    trained: set[str] = set()  # values that some weight has a say in
    for node in graph.nodes:
        if node.op.differentiable is not None and (
            node.weights or any(node.inputs[i] in trained for i in node.op.differentiable)
        ):
            trained.add(node.name)
    loss = graph.outputs["loss"]
    if loss not in trained:
        raise ShapeError(f"loss {loss}: no weight leads to it, so there is nothing to train")
    steps: list[Step] = []
    parts: dict[str, list[str]] = {loss: [gradient(loss)]}
    values[gradient(loss)] = Value(gradient(loss), values[loss].shape, constant=1.0 / max(1, _size(values[loss].shape)))
    consumers = {name: sum(node.inputs.count(name) for node in graph.nodes) for name in values}
    for node in reversed(graph.nodes):
        contributions = parts.get(node.name)
        if node.name not in trained or not contributions:
            continue
        dy = gradient(node.name)
        if len(contributions) > 1:
            values[dy] = Value(dy, values[node.name].shape)
            steps.append(Step("sum", Node(dy, Sum(), tuple(contributions), {}, {}), tuple(contributions), (dy,)))
        elif contributions[0] != dy:
            values[dy] = Value(dy, values[node.name].shape, base=contributions[0])
        writes = []
        wanted = tuple(i for i in node.op.differentiable or () if node.inputs[i] in trained)
        for i in wanted:
            source = node.inputs[i]
            name = gradient(source) if consumers[source] == 1 else f"{gradient(source)} from {node.name}[{i}]"
            view = node.op.is_view(training=True)
            values[name] = Value(name, values[source].shape, base=dy if view else "")
            parts.setdefault(source, []).append(name)
            writes.append(name)
        if not node.op.is_view(training=True):
            read = [dy]
            read += list(node.inputs) if "x" in node.op.reads else []
            read += [node.name] if "y" in node.op.reads else []
            steps.append(Step("backward", node, tuple(read), tuple(writes), wanted))
    return steps


def _size(shape: Shape) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size
