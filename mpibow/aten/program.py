"""A module of PyTorch as a list of calls of its operators, without PyTorch: plain records and NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mpibow.graph.graph import Array, Buffer


@dataclass(frozen=True)
class Ref:
    """The value of the input, parameter, buffer or earlier call of this name."""

    name: str


@dataclass(frozen=True)
class Batch:
    """An extent that is a multiple of the batch size."""

    times: int


@dataclass(frozen=True)
class Place:
    """The place of a call in the module's source: the part's path and class, FILE:LINE and that line."""

    part: str
    kind: str
    source: str
    line: str

    def __str__(self) -> str:
        part = f"{self.part} ({self.kind})" if self.part else self.kind
        return ", ".join(filter(None, (part, f"{self.source}: {self.line}" if self.source else "")))


@dataclass(frozen=True)
class Call:
    """An operator applied: its name as `conv2d`, arguments by ATen's names, and the NumPy type of its result.

    An argument is a number, a text, None, a Ref, a Batch, an array, or a list of these. `shape` has Batch extents;
    None where a call returns several values.
    """

    name: str
    operator: str
    arguments: Mapping[str, Any]
    place: Place
    dtype: str | None = None
    shape: tuple[int | Batch, ...] | None = None


@dataclass(frozen=True)
class Input:
    """An argument of the module's forward: its extents behind the batch, and its NumPy type."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Program:
    """The whole program: `kind` is the module's class. `outputs` have names where there are several.

    `frozen` are the parameters that are not trained, as their requires_grad is false.
    """

    kind: str
    inputs: tuple[Input, ...]
    parameters: Mapping[str, Array]
    buffers: Mapping[str, Buffer]
    calls: tuple[Call, ...]
    outputs: Ref | Mapping[str, Ref]
    frozen: tuple[str, ...] = ()


def refs(value: Any) -> Iterator[str]:
    """The names in an argument, one for each reference."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from refs(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from refs(each)
