"""Frozen weights: a graph whose plan makes no gradients of them, nor of anything that only they have a say in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mpibow.graph.graph import Graph, Node


def frozen(graph: Graph, names: Collection[str]) -> Graph:
    """`graph` with these weights frozen, the same one where there are none."""
    if not names:
        return graph
    out = Graph()
    for name in graph.inputs:
        out.input(name, graph.tensors[name].shape, graph.tensors[name].dtype)
    for node in graph.nodes:
        out.append(_frozen(node, names), *graph.made(node))
    for key, name in graph.outputs.items():
        out.output(key, out.tensors[name])
    return out


def _frozen(node: Node, names: Collection[str]) -> Node:
    weights = {
        key: replace(weight, trained=False) if node.full(key) in names else weight
        for key, weight in node.weights.items()
    }
    return replace(node, weights=weights)
