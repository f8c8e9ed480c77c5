"""What a plan and a kernel set agree on: the buffers a kernel wants, the arrays it is bound to, what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mpibow.graph.graph import Array, Shape

Run = Callable[[], None]  # computes; allocates nothing, asks nothing, decides nothing
Spec = tuple[Shape, str]  # shape and dtype; FLOAT is the plan's precision


@dataclass(frozen=True)
class Buffers:
    """`saved` lives from forward to backward, `forward` and `backward` are scratch during that call."""

    saved: Mapping[str, Spec] = field(default_factory=dict)
    forward: Mapping[str, Spec] = field(default_factory=dict)
    backward: Mapping[str, Spec] = field(default_factory=dict)


@dataclass(frozen=True)
class Shapes:
    """What a kernel sees of a node before there are arrays."""

    x: tuple[Shape, ...]
    y: Shape
    training: bool


@dataclass(frozen=True)
class Call:
    """The arrays of one node. In a forward call `dy`, `dx` and `dw` are empty; dx[i] is None where not wanted."""

    name: str
    op: Any
    x: tuple[Array, ...]
    y: Array
    w: Mapping[str, Array]
    saved: Mapping[str, Array]
    scratch: Mapping[str, Array]
    dy: Array
    dx: tuple[Array | None, ...] = ()
    dw: Mapping[str, Array] = field(default_factory=dict)
    statistics: Mapping[str, Array] = field(default_factory=dict)

    def buffer(self, key: str) -> Array:
        """The buffer `key`, saved in training and scratch in evaluation."""
        return self.saved[key] if key in self.saved else self.scratch[key]


@dataclass(frozen=True)
class Kernel:
    """How one operator is computed by one library: binds arrays to runs.

    `backward` overwrites dx and dw, it never adds; None for an operator without gradients.
    """

    forward: Callable[[Call], Run]
    backward: Callable[[Call], Run] | None = None
    buffers: Callable[[Any, Shapes], Buffers] = lambda op, shapes: Buffers()


KernelTable = Mapping[type, Kernel]
