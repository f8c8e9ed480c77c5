"""Finds products of transposed matrices: strides express the transpose, without a copy."""

from __future__ import annotations

from collections import Counter

from mpibow.graph.graph import Graph, Node
from mpibow.graph.rewrite import rebuilt
from mpibow.ops import Matmul, Permute
from mpibow.ops.fused import TurnedMatmul


def turned_together(graph: Graph) -> Graph:
    reads = Counter(name for node in graph.nodes for name in node.inputs)
    reads.update(graph.outputs.values())
    turns = {node.name: node.inputs[0] for node in graph.nodes if _turns(node) and reads[node.name] == 1}
    taken, inside = dict[str, Node](), set[str]()
    for node in graph.nodes:
        if not isinstance(node.op, Matmul):
            continue
        a, b = node.inputs
        many = len(graph.tensors[a].shape) > len(graph.tensors[b].shape)  # its rows are one matrix in memory
        turned = (a in turns and not many, b in turns)
        if any(turned):
            inputs = tuple(turns[name] if each else name for name, each in zip(node.inputs, turned, strict=True))
            taken[node.name] = Node(node.name, TurnedMatmul(turned), inputs, {}, {})
            inside |= {name for name, each in zip(node.inputs, turned, strict=True) if each}
    return rebuilt(graph, taken, inside)


def _turns(node: Node) -> bool:
    """Whether it exchanges the last two axes."""
    if not isinstance(node.op, Permute) or len(node.op.axes) < 2:
        return False
    *front, last, other = node.op.axes
    return front == list(range(len(front))) and (last, other) == (len(front) + 1, len(front))
