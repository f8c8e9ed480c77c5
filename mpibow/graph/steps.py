"""Graph -> steps: forward, the backward halves in reverse, and explicit sums where a value is used twice."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

from mpibow.errors import ShapeError

from .graph import FLOAT, OUTPUT, Graph, InputNumbers, Node, Op, Shape
from .rewrite import WIDE, Widths


class Sum(Op):
    """y = x0 + x1 + ...: adds up the gradients of a value that is used more than once."""

    kind = "sum"

    def infer(self, *shapes: Shape) -> Shape:
        if not shapes or any(shape != shapes[0] for shape in shapes):
            raise ShapeError("all inputs must have one shape")
        return shapes[0]


@dataclass(frozen=True)
class Value:
    """A named array of the plan, in the layout `format`, canonical if that is ''.

    `base` names the value whose memory it shares, '' if it has its own; `place` names the replica's flat array that
    contains it.
    """

    name: str
    shape: Shape
    dtype: str = FLOAT
    base: str = ""
    constant: float | None = None
    format: str = ""
    place: Literal["", "weights", "gradients"] = ""


@dataclass(frozen=True)
class Step:
    """One kernel's run: `reads` and `writes` are value names; `weights` and `gradients` are those of the node's by key.

    A backward step writes the gradients of the node's inputs number `wanted`, in that order.
    """

    kind: Literal["forward", "backward", "sum", "reorder"]
    node: Node
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    wanted: InputNumbers = ()
    weights: Mapping[str, str] = field(default_factory=dict)
    gradients: Mapping[str, str] = field(default_factory=dict)

    @property
    def touches(self) -> tuple[str, ...]:
        return (*self.reads, *self.writes, *self.weights.values(), *self.gradients.values())


def kind_of(step: Step) -> str:
    """The key that a step's time is counted under: its operator, and whether it is the forward or the backward half."""
    kind = step.node.op.kind
    return kind if step.kind in ("sum", "reorder") else f"{step.kind} {kind}"


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

    def last(self) -> dict[str, int]:
        """The number of the last step that touches each root, by its name."""
        return {self.root(name): i for i, step in enumerate(self.steps) for name in step.touches}


def gradient(name: str) -> str:
    """The value name of the gradient of `name`."""
    return f"d {name}"


def weight(name: str) -> str:
    """The value name of the weight `name` as it lies in the replica."""
    return f"weight {name}"


def compile_steps(
    graph: Graph,
    training: bool,
    formats: Mapping[str, str] | None = None,
    inputs_alone: Callable[[Op], bool] = lambda op: True,
) -> Program:
    """The program of `graph`: forward only, or with the gradients of the mean of its 'loss' output.

    `formats` are the layouts of its tensors, if not canonical. Gradients of frozen weights have no place in the
    replica; backward computes them only beside others, and only for an operator without `inputs_alone`.
    """
    formats = formats or {}
    values = {t.name: Value(t.name, t.shape, t.dtype, format=formats.get(t.name, "")) for t in graph.tensors.values()}
    for node in graph.nodes:
        for key, own in node.weights.items():
            name = weight(node.full(key))
            values[name] = Value(name, own.shape, place="weights")
            values[gradient(name)] = Value(gradient(name), own.shape, place="gradients" if own.trained else "")
    steps = []
    for node in graph.nodes:
        if node.op.is_view(training):
            base = values[node.inputs[0] if node.inputs else weight(node.full(*node.weights))]
            values[node.name] = replace(values[node.name], base=base.name, dtype=base.dtype)
        else:
            steps.append(Step("forward", node, node.inputs, node.made, weights=_weights(node)))
    if training:
        steps += _backward(graph, values, inputs_alone)
    return Program(tuple(steps), values)


def _backward(graph: Graph, values: dict[str, Value], inputs_alone: Callable[[Op], bool]) -> list[Step]:
    """Reverse mode: a node runs back once the gradient of its output is complete, so the graph's reverse order does.

    Raises ShapeError where a gradient that a weight needs ends at an operator that has none for this input.
    """
    if "loss" not in graph.outputs:
        raise ShapeError("a training plan needs an output named 'loss': graph.output('loss', tensor)")
    trained = trained_values(graph)
    loss = graph.outputs["loss"]
    if loss not in trained:
        raise ShapeError(f"loss {loss}: no weight leads to it, so there is nothing to train")
    steps = []
    parts = {loss: [gradient(loss)]}
    values[gradient(loss)] = Value(gradient(loss), values[loss].shape, constant=1.0 / prod(values[loss].shape))
    consumers = {name: sum(node.inputs.count(name) for node in graph.nodes) for name in values}
    for node in reversed(graph.nodes):
        if node.name not in trained or not any(map(parts.get, node.made)):
            continue
        for name in node.made:
            contributions = parts.get(name, [])
            dy = gradient(name)
            if not contributions:  # one of several outputs, which nothing reads
                values[dy] = Value(dy, values[name].shape, constant=0.0)
            elif len(contributions) > 1:
                values[dy] = Value(dy, values[name].shape, format=values[name].format)
                steps.append(Step("sum", Node(dy, Sum(), tuple(contributions)), tuple(contributions), (dy,)))
            elif contributions[0] != dy:
                values[dy] = replace(values[contributions[0]], name=dy, base=contributions[0])
        dy = gradient(node.name)
        writes = {}
        wanted = inputs_wanted(node, trained)
        for i, source in enumerate(node.inputs):
            if source in trained and i not in wanted and i not in node.op.flat:
                raise ShapeError(
                    f"{node.name} ({node.op.kind}): has no gradient for {source}, which depends on weights that are "
                    f"trained; mb.detach({source}) takes it for a constant"
                )
        made = {OUTPUT: dy}
        for i in wanted:
            source = node.inputs[i]
            name = gradient(source) if consumers[source] == 1 else f"{gradient(source)} from {node.name}[{i}]"
            share = OUTPUT if node.op.is_view(training=True) else node.op.shares(i)
            base = made.get(share, "") if share is not None else ""
            made[i] = name
            values[name] = Value(name, values[source].shape, base=base, format=values[source].format)
            parts.setdefault(source, []).append(name)
            if not base:
                writes[i] = name
        if writes or trains(node):
            read = list(map(gradient, node.made))
            read += list(node.inputs) if "x" in node.op.reads else []
            read += node.made if "y" in node.op.reads else []
            weights = _weights(node)
            made_too = weights if trains(node) or not inputs_alone(node.op) else {}
            steps.append(
                Step(
                    "backward",
                    node,
                    tuple(read),
                    tuple(writes.values()),
                    tuple(writes),
                    weights,
                    {key: gradient(name) for key, name in made_too.items()},
                )
            )
    return steps


def trained_values(graph: Graph) -> set[str]:
    """The tensors that depend on a trained weight."""
    trained = set[str]()
    for node in graph.nodes:
        if trains(node) or any(name in trained for i, name in enumerate(node.inputs) if i not in node.op.flat):
            trained.update(node.made)
    return trained


def inputs_wanted(node: Node, trained: Container[str]) -> InputNumbers:
    """The inputs that backward computes a gradient for, given the tensors that depend on a trained weight."""
    able = node.op.differentiable or ()
    return tuple(i for i, name in enumerate(node.inputs) if i in able and name in trained)


def trains(node: Node) -> bool:
    """Whether one of its weights is trained."""
    return any(weight.trained for weight in node.weights.values())


def _weights(node: Node) -> dict[str, str]:
    return {key: weight(node.full(key)) for key in node.weights}


def widened(program: Program, widths: Widths) -> Program:
    """`program` in 16 bits: weights and the values of `widths` stay float32, and so do their gradients."""
    values = dict(program.values)

    def widen(*names: str) -> None:
        for name in names:
            if values[name].dtype == FLOAT:
                values[name] = replace(values[name], dtype=WIDE)

    widen(*(name for name, value in values.items() if value.place))
    for step in program.steps:
        widen(*step.gradients.values())  # of frozen weights, too
        dtypes = [values[program.root(name)].dtype for name in step.node.inputs]
        if step.kind == "backward":
            widen(*(name for i, name in zip(step.wanted, step.writes, strict=True) if dtypes[i] == WIDE))
        elif widths.made(step.node.op, dtypes) == WIDE:
            widen(*step.writes)
            for name in step.writes:
                widen(*({gradient(name)} & values.keys()))
    return Program(program.steps, values)
