"""Frozen weights: a graph whose plan computes no gradients of them, nor of tensors that depend on them alone.

A batch norm whose weights are all frozen leaves its running statistics as they are, and normalises by them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from mpibow.graph.fuse import rebuilt
from mpibow.graph.graph import Graph, Node, Shape


def frozen(graph: Graph, names: Collection[str]) -> Graph:
    """`graph` with these weights frozen; the same graph if there are none."""
    if not names:
        return graph
    nodes = {
        node.name: _frozen(node, names, [graph.tensors[name].shape for name in node.inputs]) for node in graph.nodes
    }
    return rebuilt(graph, nodes, ())


def _frozen(node: Node, names: Collection[str], shapes: Sequence[Shape]) -> Node:
    weights = {
        key: replace(weight, trained=False) if node.full(key) in names else weight
        for key, weight in node.weights.items()
    }
    if not weights or any(weight.trained for weight in weights.values()):
        return replace(node, weights=weights)
    op = node.op.untrained()
    return replace(node, op=op, weights=weights, statistics=op.statistics(*shapes))
