"""Attention on a call's arrays: buffers and arguments of `attend`, for heads one behind the other or side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes, Spec
from mpibow.kernels.compiled.attention import attend, attend_back
from mpibow.kernels.compiled.native import Argument
from mpibow.kernels.compiled.products import room, room_spec
from mpibow.ops import Attention
from mpibow.ops.fused import HeadsAttention

FEW, ROWS = 32, 128  # of scores at a time: few where causal and short, so that fewer are computed in vain
KEPT = 512  # columns up to which scores are kept: backward takes a sixth less there, at 1,024 a fourteenth
KINDS = {4: 2, 8: 3, 1: 4}  # kinds of integer masks, by their bytes; 1 is a mask of floats, 0 none


def _heads(shapes: Shapes) -> tuple[int, int, int, int, int]:
    """The number of heads, t, s, d and e."""
    (*front, t, d), (*_, s, _), (*_, e), *_ = shapes.x
    return prod(front), t, s, d, e


def _rows(op: Attention, t: int) -> int:
    return min(FEW if op.causal and t <= 2 * ROWS else ROWS, t)


def buffers(op: Attention, shapes: Shapes) -> Buffers:
    heads, t, s, d, e = _heads(shapes)
    wide, rows = -(-s // 16) * 16, _rows(op, t)
    level, scores = ((heads, t, 2), FLOAT), ((rows, wide), FLOAT)
    kept: dict[str, Spec] = {"kept": ((heads, t, wide), FLOAT)} if shapes.training and s <= KEPT else {}
    computed: dict[str, Spec] = {} if kept else {"scores": scores}
    forward = {**computed, "room": room_spec(room(rows, s, d), room(rows, e, s))}
    sizes = [room(rows, s, max(d, e)), room(rows, d, s), room(s, max(d, e), rows, transposed=True)]
    backward = {**computed, "slopes": scores, "room": room_spec(*sizes)}
    return Buffers(saved={"level": level, **kept}, forward=forward, backward=backward)


def _kind(mask: Array) -> int:
    kind = 1 if mask.dtype.kind == "f" else KINDS.get(mask.itemsize, 0)
    if not kind:
        raise ShapeError(f"a mask must be of floats, or of integers of 1, 4 or 8 bytes, got {mask.dtype}")
    return kind


def _places(view: Array) -> Array:
    """int64: the bytes to each matrix of a view (..., rows, columns)."""
    places = np.zeros(1, np.int64)
    for extent, step in zip(view.shape[:-2], view.strides[:-2], strict=True):
        places = np.add.outer(places, np.arange(extent) * step)
    return places.reshape(-1)


def arguments_of(call: Call, op: Attention, views: Sequence[Array], masks: Sequence[Array]) -> dict[str, Argument]:
    """The arguments that both kernels take, but for those named as the call's arrays are.

    The views (..., t, d) are q, k, v, and y or its gradient.
    """
    q, k, v, _ = views
    (*front, t, d), s, e = q.shape, k.shape[-2], v.shape[-1]
    shown = np.broadcast_to(masks[0] if masks else np.float32(0), (*front, t, s))
    places = np.stack([_places(view) for view in (*views, shown)], 1)
    rows = {f"{name}_row": view.strides[-2] for name, view in zip("qkvy", views, strict=True)}
    return {
        "q": q,
        "k": k,
        "v": v,
        "mask": masks[0] if masks else None,
        "kind": _kind(masks[0]) if masks else 0,
        "mask_row": shown.strides[-2],
        "mask_step": shown.strides[-1] // shown.itemsize,
        "place": call.scratch["room"],
        "places": places,
        "heads": len(places),
        "t": t,
        "s": s,
        "d": d,
        "e": e,
        **rows,
        "causal": op.causal,
        "scale": op.scale,
        "tall": _rows(op, t),
    }


def forward(call: Call) -> Run:
    return attend.on(call, **arguments_of(call, call.op, [*call.x[:3], call.y], call.x[3:]))


def backward(call: Call) -> Run:
    dq, dk, dv, *dmasks = call.dx
    arguments = arguments_of(call, call.op, [*call.x[:3], call.dy], call.x[3:])
    return attend_back.on(call, dq=dq, dk=dk, dv=dv, dmask=dmasks[0] if dmasks else None, **arguments)


# Heads that lie side by side in every position: the distance of rows separates them.


def beside_buffers(op: HeadsAttention, shapes: Shapes) -> Buffers:
    return buffers(op.attention, replace(shapes, x=op.apart(*shapes.x)))


def _three(op: HeadsAttention, arrays: Sequence[Array | None]) -> list[Array | None]:
    """q, k and v, or their gradients; None for a gradient that is not needed."""
    if not op.packed:
        return [*arrays[:3]]
    return [None] * 3 if arrays[0] is None else [*np.split(arrays[0], 3, -1)]


def _apart(op: HeadsAttention, array: Array) -> Array:
    """(n, t, heads d) as a view (n, heads, t, d)."""
    return array.reshape(*array.shape[:2], op.heads, -1).swapaxes(1, 2)


def _beside_arguments(call: Call, y: Array) -> dict[str, Argument]:
    op, masks = call.op, call.x[1 if call.op.packed else 3 :]
    views = [_apart(op, each) for each in (*_three(op, call.x), y) if each is not None]
    return arguments_of(call, op.attention, views, masks)


def beside_forward(call: Call) -> Run:
    return attend.on(call, **_beside_arguments(call, call.y))


def beside_backward(call: Call) -> Run:
    op, dmasks = call.op, call.dx[1 if call.op.packed else 3 :]
    dq, dk, dv = (None if each is None else _apart(op, each) for each in _three(op, call.dx))
    arguments, dmask = _beside_arguments(call, call.dy), dmasks[0] if dmasks else None
    return attend_back.on(call, dq=dq, dk=dk, dv=dv, dmask=dmask, **arguments)


KERNELS = {
    Attention: Kernel(forward, backward, buffers),
    HeadsAttention: Kernel(beside_forward, beside_backward, beside_buffers),
}
