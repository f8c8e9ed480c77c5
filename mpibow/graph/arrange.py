"""Layouts for a graph's tensors: kernels request layouts, and reorders are inserted where neighbours disagree."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mpibow.errors import ShapeError

from .formats import Reorder, canonical
from .graph import FLOAT, Graph, Node
from .kernel import LACKS, Formats, KernelTable, Shapes
from .steps import inputs_wanted, trained_values


@dataclass(frozen=True)
class Arrangement:
    """`graph` with reorders as nodes; the layout of every tensor that is not canonical; the `Shapes` of each node.

    A gradient has its tensor's layout, so the backward half of a reorder is the reorder back.
    """

    graph: Graph
    formats: Mapping[str, str]
    shapes: Mapping[str, Shapes]

    def weight_formats(self) -> dict[str, str]:
        """The layout in which forward reads each weight, by full name."""
        return {
            node.full(key): tag
            for node in self.graph.nodes
            for key, tag in self.shapes[node.name].formats.w.items()
            if key in node.weights
        }

    def ranks(self) -> dict[str, int]:
        """The ranks of the gradients that kernels can keep as factors, by the full names of their weights."""
        shapes = self.shapes
        return {node.full(k): r for node in self.graph.nodes for k, r in shapes[node.name].formats.factors.items()}


def arrange(graph: Graph, kernels: KernelTable, training: bool, lacks: str = LACKS) -> Arrangement:
    """Asks every node's kernel in order, given its inputs' layouts. Inputs and outputs of the graph are canonical.

    Raises ShapeError, with the text `lacks`, where the kernels lack an operator, and where they refuse the shapes.
    """
    missing = sorted(
        {
            node.op.kind
            for node in graph.nodes
            if type(node.op) not in kernels and (not node.op.is_view(training) or (training and node.weights))
        }
    )
    if missing:
        raise ShapeError(lacks.format(", ".join(missing)))
    trained = trained_values(graph) if training else set()
    out = Graph()
    for name in graph.inputs:
        out.input(name, graph.tensors[name].shape, graph.tensors[name].dtype)
    found = dict[str, str]()  # layouts that are not canonical
    shapes = {}

    def layout_of(name: str) -> str:
        return found.get(name, canonical(out.tensors[name].shape))

    def reordered(name: str, tag: str) -> str:
        """The tensor in the layout `tag`: itself, or a reorder of it that may be there already."""
        if layout_of(name) == tag:
            return name
        copy = f"{name} as {tag}"
        if copy not in out.tensors:
            shape = out.tensors[name].shape
            op = Reorder(layout_of(name), tag)
            wanted = (0,) if name in trained else ()
            shapes[copy] = Shapes((shape,), shape, training, wanted, Formats((op.source,), tag))
            out.append(Node(copy, op, (name,)), shape)
            if tag != canonical(shape):
                found[copy] = tag
            if name in trained:
                trained.add(copy)
        return copy

    for node in graph.nodes:
        x = tuple(graph.tensors[name].shape for name in node.inputs)
        ys = graph.made(node)
        y = ys[0]
        mine = Shapes(x, y, training, inputs_wanted(node, trained), ys=ys)
        try:
            if node.op.is_view(training):
                formats = Formats(tuple(map(canonical, x)), canonical(y))
            else:
                formats = kernels[type(node.op)].formats(node.op, mine, tuple(map(layout_of, node.inputs)))
        except ShapeError as error:
            raise ShapeError(f"{node.name} ({node.op.kind}): {error}") from None
        inputs = tuple(
            reordered(name, tag) if graph.tensors[name].dtype == FLOAT else name
            for name, tag in zip(node.inputs, formats.x, strict=True)
        )
        out.append(replace(node, inputs=inputs), *ys)
        shapes[node.name] = replace(mine, formats=formats)
        if formats.y != canonical(y):
            found[node.name] = formats.y
    for key, name in graph.outputs.items():
        out.output(key, out.tensors[reordered(name, canonical(graph.tensors[name].shape))])
    return Arrangement(out, found, shapes)
