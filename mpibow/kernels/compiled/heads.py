"""Attention of heads that lie side by side in every position: the distance of rows separates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled import attention
from mpibow.kernels.compiled.attention import Lies, arguments_of, attend, attend_back
from mpibow.ops.fused import HeadsAttention


def _apart(op: HeadsAttention, shapes: Shapes) -> Shapes:
    return replace(shapes, x=op.apart(*shapes.x))


def buffers(op: HeadsAttention, shapes: Shapes) -> Buffers:
    return attention.buffers(op.attention, _apart(op, shapes))


def _three(op: HeadsAttention, arrays: tuple[Array | None, ...]) -> Sequence[Array | None]:
    """The arrays q, k and v, or their gradients: None for a gradient that is not needed."""
    if not op.packed:
        return arrays[:3]
    whole = arrays[0]
    if whole is None:
        return [None] * 3
    width = whole.shape[-1] // 3
    return [whole.reshape(-1)[i * width :] for i in range(3)]


def _lies(op: HeadsAttention, x: tuple[tuple[int, ...], ...]) -> Lies:
    """The layout of the heads: bytes from position to position, and to each head's first number, of q, k, v and y."""
    (n, heads, t, d), (_, _, s, _), (*_, e), *_ = op.apart(*x)
    widths = [3 * heads * d] * 3 if op.packed else [heads * d, heads * d, heads * e]
    sample, head = np.divmod(np.arange(n * heads), heads)
    of = zip((*widths, heads * e), (t, s, s, t), (d, d, e, e), strict=True)
    places = [4 * (sample * positions * width + head * size) for width, positions, size in of]
    return Lies(np.stack(places, 1), [4 * width for width in (*widths, heads * e)])


def _arguments(call: Call) -> dict[str, Any]:
    op, shapes, (q, k, v) = call.op, call.shapes, _three(call.op, call.x)
    masks, lies = call.x[1 if op.packed else 3 :], _lies(op, shapes.x)
    return {"q": q, "k": k, "v": v, **arguments_of(op.attention, _apart(op, shapes), tuple(masks), lies, call)}


def forward(call: Call) -> Run:
    return attend.on(call, **_arguments(call))


def backward(call: Call) -> Run:
    (dq, dk, dv), dmasks = _three(call.op, call.dx), call.dx[1 if call.op.packed else 3 :]
    return attend_back.on(call, dq=dq, dk=dk, dv=dv, dmask=dmasks[0] if dmasks else None, **_arguments(call))
