"""Attention of heads that lie side by side in every position: the distance of rows separates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled import attention
from mpibow.kernels.compiled.attention import arguments_of, attend, attend_back
from mpibow.ops.fused import HeadsAttention


def buffers(op: HeadsAttention, shapes: Shapes) -> Buffers:
    return attention.buffers(op.attention, replace(shapes, x=op.apart(*shapes.x)))


def _apart(op: HeadsAttention, *arrays: Array | None) -> list[Any]:
    """Arrays (n, t, heads d) as views (n, heads, t, d); None for a gradient that is not needed."""
    return [None if each is None else each.reshape(*each.shape[:2], op.heads, -1).swapaxes(1, 2) for each in arrays]


def _three(op: HeadsAttention, arrays: Sequence[Array | None]) -> list[Any]:
    """The views of q, k and v, or of their gradients."""
    if op.packed:
        arrays = [None] * 3 if arrays[0] is None else np.split(arrays[0], 3, -1)
    return _apart(op, *arrays[:3])


def _arguments(call: Call, y: Array) -> dict[str, Any]:
    op, masks = call.op, call.x[1 if call.op.packed else 3 :]
    return arguments_of(call, op.attention, [*_three(op, call.x), *_apart(op, y)], masks)


def forward(call: Call) -> Run:
    return attend.on(call, **_arguments(call, call.y))


def backward(call: Call) -> Run:
    (dq, dk, dv), dmasks = _three(call.op, call.dx), call.dx[1 if call.op.packed else 3 :]
    given = _arguments(call, call.dy)
    return attend_back.on(call, dq=dq, dk=dk, dv=dv, dmask=dmasks[0] if dmasks else None, **given)
