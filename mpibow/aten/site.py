"""The site of an operator in a program: its arguments as tensors, its weights, its place in the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from mpibow import ops
from mpibow.aten.program import Batch, Call
from mpibow.errors import ConfigError
from mpibow.graph.graph import FLOAT, Array, Graph, Operator, Shape, Tensor
from mpibow.graph.scope import prefix
from mpibow.ops.initialisers import Given

WHOLE = "int32"  # the type of all integers of a net


@dataclass(frozen=True, eq=False)
class Held:
    """An array that the module holds under this name, and the number of its readers; a parameter where `trained`."""

    name: str
    array: Array
    uses: int
    trained: bool

    @property
    def shape(self) -> Shape:
        return tuple(self.array.shape)


@dataclass(frozen=True)
class Filled:
    """A tensor of one repeated number, made only where it is needed; None: any number."""

    shape: Shape
    value: float | None
    dtype: str = FLOAT


Value = Tensor | Held | Filled | Array


@dataclass
class Site:
    """A call of a program as it is added to `graph`; `made` are the parameters that are tensors already."""

    graph: Graph
    call: Call
    batch: int
    made: dict[str, Tensor] = field(default_factory=dict)

    def refuse(self, rule: str) -> NoReturn:
        raise ConfigError(rule)

    def need(self, holds: bool, rule: str) -> None:
        if not holds:
            self.refuse(rule)

    def tensor(self, value: Any) -> Tensor:
        """An argument as a tensor of the graph."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Filled):
            made = ops.full(value.shape, 0.0 if value.value is None else value.value)
            return made if value.dtype == FLOAT else ops.cast(made, value.dtype)
        if isinstance(value, Held) and value.trained:
            if value.name not in self.made:
                op = ops.Parameter(value.shape, Given(value.array), decay=True)
                self.made[value.name] = self.layer(op, weight=value)[0]
            return self.made[value.name]
        return ops.constant(value.array if isinstance(value, Held) else np.asarray(value))

    def tensors(self, values: Sequence[Any]) -> list[Tensor]:
        return [self.tensor(value) for value in values]

    def floats(self, value: Any) -> Tensor:
        """An argument as a tensor of the plan's precision."""
        return ops.cast(self.tensor(value))

    def owns(self, *values: Any) -> bool:
        """Whether an operator may own these (None is skipped): parameters that nothing else reads."""
        return all(value is None or (isinstance(value, Held) and value.trained and value.uses == 1) for value in values)

    def layer(self, op: Operator, *x: Tensor, **held: Held | None) -> tuple[Tensor, ...]:
        """The outputs of an operator that owns these parameters and statistics by their keys."""
        given = {key: each for key, each in held.items() if each is not None}
        owner = next(iter(given.values())).name.rpartition(".")[0] or next(iter(given.values())).name
        while f"{prefix()}{owner}" in self.graph.tensors:
            owner += "_"
        taken = set(self.graph.weight_names)
        if twice := [each.name for each in given.values() if f"{prefix()}{each.name}" in taken]:
            self.refuse(f"{twice[0]}: the net has weights of that name; a net of PyTorch can be applied once")
        names = {key: each.name for key, each in given.items()}
        initial = {key: Given(each.array) for key, each in given.items()}
        return self.graph.add_all(op, *x, name=owner, names=names, initial=initial)

    def extents(self, shape: Sequence[Any]) -> Shape:
        """A shape whose extents may be multiples of the batch size."""
        return tuple(extent.times * self.batch if isinstance(extent, Batch) else int(extent) for extent in shape)


def shape_of(value: Any) -> Shape:
    return tuple(value.shape)


def dtype_of(value: Any) -> str:
    """FLOAT, or the NumPy name of other numbers."""
    if isinstance(value, Tensor | Filled):
        return value.dtype
    array = value.array if isinstance(value, Held) else np.asarray(value)
    return FLOAT if array.dtype.kind == "f" else "bool" if array.dtype.kind == "b" else WHOLE


def number(value: Any) -> float | None:
    """The number in every element of an argument; None where elements differ or depend on data."""
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, Filled):
        return value.value
    if isinstance(value, np.ndarray) and value.size and (value == value.flat[0]).all():
        return float(value.flat[0])
    return None
