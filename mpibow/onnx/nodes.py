"""A model's nodes as records, and the place of a node in the graph that it is added to."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from mpibow.aten import OPERATORS
from mpibow.aten.site import ModuleArray, Result, Site, Value, number, refuse
from mpibow.graph import Array, Node, Tensor


@dataclass(frozen=True)
class OnnxNode:
    """A node: attributes are numbers, texts, arrays, or lists of these; `types` are its outputs' dtypes.

    `fold` computes its outputs from arrays, as ONNX defines them.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    made: tuple[str, ...]
    attributes: Mapping[str, Any]
    types: tuple[str, ...]
    fold: Callable[..., Sequence[Array]]


AnyNode = TypeVar("AnyNode", Node, OnnxNode)


def needed(nodes: Sequence[AnyNode], wanted: Iterable[str]) -> list[AnyNode]:
    """The nodes that the wanted values depend on, in order."""
    names = set(wanted)
    kept = []
    for node in reversed(nodes):
        if names.intersection(node.made):
            names.update(node.inputs)
            kept.append(node)
    return kept[::-1]


@dataclass
class NodeSite(Site):
    """A node as it is added to a graph. `fixed` is the batch size that is written into the file; None for any."""

    node: OnnxNode = field(kw_only=True)
    fixed: int | None = None

    def results(self, operator: str, /, **arguments: object) -> Any:
        """What ATen's operator of these arguments gives."""
        if operator not in OPERATORS:
            refuse(f"{operator} has no counterpart")
        self.call = replace(self.call, operator=operator)
        return OPERATORS[operator](self, **arguments)

    def aten(self, operator: str, /, **arguments: object) -> Tensor:
        """The tensor that ATen's operator gives; of several results the first."""
        result = self.results(operator, **arguments)
        return self.tensor(result[0] if isinstance(result, list) else result)

    def shapes(self, x: Value, *settings: Value | None) -> list[tuple[int, ...]]:
        """The shapes of the node's outputs for x, by the package's own definition."""
        constants = (None if each is None else constant(each) for each in settings)
        return [each.shape for each in self.node.fold(np.empty(x.shape, bool), *constants)]


# Site, inputs by place, None for one left out, attributes by name -> output, or a list of them. Some settings are
# attributes in some opsets and inputs in others: their parameters take both.
Translation = Callable[..., Result]
Setting = Value | Sequence[float] | float


def constant(value: Setting | None) -> Array:
    """The array of a setting, which must not depend on the data."""
    array = value.array if isinstance(value, ModuleArray) else value
    if isinstance(array, np.ndarray | Sequence | float | int):
        return np.asarray(array)
    return refuse("an input that must be constant depends on the data")


def integers(value: Setting | None) -> list[int]:
    """The whole numbers of a setting; none where it is left out."""
    return [] if value is None else [int(each) for each in constant(value).reshape(-1)]


def single(value: Setting, name: str) -> float:
    """The number of a setting that must be one."""
    found = number(constant(value))
    return found if found is not None else refuse(f"{name} must be one number")
