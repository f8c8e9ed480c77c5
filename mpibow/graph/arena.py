"""The contents of a plan's arena: the names, shapes, types and bytes of its values and buffers."""

from __future__ import annotations

import numpy as np

from mpibow.graph.formats import canonical, physical
from mpibow.graph.graph import FLOAT, Node, Shape
from mpibow.graph.kernel import Buffers
from mpibow.graph.steps import Step, Value


def extra_buffers(step: Step, buffers: Buffers) -> dict[str, tuple[Shape, str]]:
    """The saved and scratch buffers that a step touches, by their names in the arena."""
    scratch = buffers.backward if step.kind == "backward" else buffers.forward
    return {saved_name(step.node, key): spec for key, spec in buffers.saved.items()} | {
        scratch_name(step, key): spec for key, spec in scratch.items()
    }


def saved_name(node: Node, key: str) -> str:
    return f"{node.name}.saved.{key}"


def scratch_name(step: Step, key: str) -> str:
    return f"{step.node.name}.{step.kind}.{key}"


def format_of(value: Value) -> str:
    return value.format or canonical(value.shape)


def extents_of(value: Value) -> Shape:
    """The shape of a value's array."""
    return physical(format_of(value), value.shape)


def dtype_of(dtype: str, precision: str) -> np.dtype[np.generic]:
    return np.dtype(precision if dtype == FLOAT else dtype)


def bytes_of(shape: Shape, dtype: str, precision: str) -> int:
    return int(np.prod(shape)) * dtype_of(dtype, precision).itemsize
