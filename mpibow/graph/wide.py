"""Widens a graph of one learner to k: the same operators compute the tensors that depend on weights for all replicas.

The replicas' channels stand side by side: convolutions have k times the groups, norms and sums stay per channel, and
rows of losses are sample by sample, replica by replica: row i k + r. Tensors that depend on no weight (images before
the net, and targets) stay each learner's own, with inputs "image @0", "image @1" ...
"""

from collections.abc import Callable, Mapping
from typing import Any

from mpibow.errors import ShapeError

from .graph import FLOAT, Graph, Node, Op, Shape
from .steps import trained_values

Widened = Mapping[type, Callable[[Any, int], Op]]  # operator -> that of k replicas
MARK = " @"  # between a name and the learner's number


def plain(name: str) -> str:
    """The name of a learner's own node in its own graph: random numbers depend on it."""
    return name.partition(MARK)[0]


def _none(node: Node) -> str:
    return f"{node.name} ({node.op.kind}) has no form for fused learners; set execution=streams"


def widen(
    graph: Graph,
    k: int,
    operators: Widened,
    rows: tuple[type, ...],
    view: Callable[[Shape], Op],
    concat: Callable[[int, int], Op],
) -> Graph:
    """`graph` of k learners. `operators` are those with a widened form, `rows` those that work on rows of logits;
    `view(shape)` and `concat(inputs, axis)` make operators. Raises ShapeError naming operators without such a form.
    """
    out = Graph()
    trained = trained_values(graph)
    for name in graph.inputs:
        tensor = graph.tensors[name]
        for r in range(k):
            out.input(f"{name}{MARK}{r}", tensor.shape, tensor.dtype)
    joined: dict[str, str] = {}  # tensors of all learners by the name in `graph`

    def put(name: str, op: Op, *inputs: str) -> str:
        out.append(Node(name, op, inputs), op.infer(*(out.tensors[each].shape for each in inputs)))
        return name

    def shaped(name: str, shape: Shape) -> str:
        other = f"{name} as {shape}"
        if out.tensors[name].shape == shape:
            return name
        return other if other in out.tensors else put(other, view(shape), name)

    def wide(name: str) -> str:
        if name not in joined:
            shape = graph.tensors[name].shape
            parts = [shaped(f"{name}{MARK}{r}", (*shape, 1) if len(shape) == 1 else shape) for r in range(k)]
            joined[name] = put(f"{name} of all", concat(k, 1), *parts) if k > 1 else parts[0]
        return joined[name]

    for node in graph.nodes:
        if node.outputs > 1 or not node.inputs:
            raise ShapeError(f"execution: {_none(node)}")
        if node.name not in trained and not any(name in trained for name in node.inputs):
            for r in range(k):
                names = tuple(f"{name}{MARK}{r}" for name in node.inputs)
                out.append(Node(f"{node.name}{MARK}{r}", node.op, names), graph.tensors[node.name].shape)
            continue
        if type(node.op) not in operators or graph.tensors[node.inputs[0]].dtype != FLOAT:
            raise ShapeError(f"execution: {_none(node)}")
        op = operators[type(node.op)](node.op, k)
        inputs = tuple(map(wide, node.inputs))
        n, *more = graph.tensors[node.name].shape
        if isinstance(node.op, rows) or not more:  # or is computed from losses
            shapes = [graph.tensors[name].shape[1:] for name in node.inputs]
            inputs = tuple(shaped(name, (n * k, *own)) for name, own in zip(inputs, shapes, strict=True))
        x = [out.tensors[name].shape for name in inputs]
        keys = (*node.weights, *node.statistics)
        wider = Node(node.name, op, inputs, op.weights(*x), op.statistics(*x), {key: node.full(key) for key in keys})
        out.append(wider, op.infer(*x))
        joined[node.name] = node.name
    for key, name in graph.outputs.items():
        out.output(key, out.tensors[wide(name)])
    return out
