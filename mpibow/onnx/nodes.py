"""A model's nodes as records, and the place of a node in the graph that it is added to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from mpibow.aten import OPERATORS
from mpibow.aten.site import ModuleArray, Result, Site, Value, number, refuse
from mpibow.graph.graph import Array, Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class OnnxNode:
    """A node: attributes are numbers, texts, arrays, or lists of these; `types` are its outputs' dtypes.

    `fold` computes its outputs from arrays, as ONNX defines them.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    types: tuple[str, ...]
    fold: Callable[..., Sequence[Array]]


@dataclass
class NodeSite(Site):
    """A node as it is added to a graph. `fixed` is the batch size that is written into the file; None for any."""

    node: OnnxNode = field(kw_only=True)
    fixed: int | None = None

    def get(self, name: str, default: T) -> T:
        """An attribute of the node."""
        value: T = self.node.attributes.get(name, default)
        return value

    def aten(self, operator: str, /, **arguments: object) -> Tensor:
        """ATen's operator of these arguments; of several results the first."""
        if operator not in OPERATORS:
            refuse(f"{operator} has no counterpart")
        self.call = replace(self.call, operator=operator)
        result: Any = OPERATORS[operator](self, **arguments)
        return self.tensor(result[0] if isinstance(result, list) else result)

    def listed(self, name: str, given: Value | None = None, default: Sequence[int] | None = None) -> list[int] | None:
        """Whole numbers that are an attribute in some opsets and an input in others; `default` where there are none."""
        if given is not None:
            return [int(each) for each in constant(given).reshape(-1)]
        found = self.get(name, default)
        return None if found is None else [int(each) for each in found]


Translation: TypeAlias = Callable[..., Result]  # site and inputs, None for one left out -> output, or a list of them


def constant(value: Value | None) -> Array:
    """The array of an input that must not depend on the data."""
    if isinstance(value, ModuleArray):
        return value.array
    return value if isinstance(value, np.ndarray) else refuse("an input that must be constant depends on the data")


def single(value: Value, name: str) -> float:
    """The number of an input that must be one."""
    found = number(constant(value))
    return found if found is not None else refuse(f"{name} must be one number")
