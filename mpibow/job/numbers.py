"""The numbers in a net's operators, such as constants that a program drew at random; and the net without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np

from mpibow.graph.graph import Graph, Op
from mpibow.models.classifier import Build

Numbers = Mapping[str, Mapping[str, Any]]  # by node and setting: a float, or a tuple of them


@dataclass(frozen=True)
class Pinned:
    """The graphs of `build`, with these numbers in training and in evaluation."""

    build: Build
    training: Numbers
    evaluation: Numbers

    def __call__(self, batch: int, training: bool = False) -> Graph:
        graph, numbers = self.build(batch, training), self.training if training else self.evaluation
        graph.nodes[:] = [
            replace(node, op=replace(cast(Any, node.op), **numbers[node.name])) if node.name in numbers else node
            for node in graph.nodes
        ]
        return graph


def numbers_of(graph: Graph) -> dict[str, dict[str, Any]]:
    """The numbers of all operators; integers are part of the structure."""
    found = {node.name: dict(_settings(node.op, _is_number)) for node in graph.nodes}
    return {name: numbers for name, numbers in found.items() if numbers}


def differing(one: Numbers, other: Numbers) -> list[str]:
    """The settings of `one` that are other numbers in `other`, as conv1.scale."""
    return [
        f"{name}.{key}"
        for name, settings in one.items()
        for key, value in settings.items()
        if np.array(value).tobytes() != np.array(other.get(name, {}).get(key, ())).tobytes()  # NaN is like NaN
    ]


def structure_of(graph: Graph) -> dict[str, str]:
    """Each input, operator and output in words, without the numbers and the first values of weights."""
    inputs = {name: repr((graph.tensors[name].shape, graph.tensors[name].dtype)) for name in graph.inputs}
    nodes = {
        node.name: repr((
            node.op.kind, node.inputs, graph.made(node),
            [(name, None if _is_number(value) else value) for name, value in _settings(node.op, _is_plain)],
            [(node.full(key), each.shape, each.decay, each.trained) for key, each in node.weights.items()],
            [(node.full(key), each.shape) for key, each in node.statistics.items()],
        ))
        for node in graph.nodes
    }  # fmt: skip
    return inputs | nodes | {f"output {key}": name for key, name in graph.outputs.items()}


def _settings(op: Op, wanted: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    values = ((each.name, getattr(op, each.name)) for each in fields(cast(Any, op)))
    return ((name, value) for name, value in values if wanted(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, tuple) and any(isinstance(each, float) for each in value))


def _is_plain(value: Any) -> bool:
    """Whether it is no function, as those are by which weights start."""
    return not callable(value)
