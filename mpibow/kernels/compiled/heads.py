"""Attention on a call's arrays: buffers and arguments of `attend`, for heads one behind the other or side by side."""

from collections.abc import Sequence
from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import FLOAT, Array, Buffers, Call, Kernel, Run, Shapes
from mpibow.ops import Attention
from mpibow.ops.fused import HeadsAttention

from .attention import attend, rows_at_once
from .native import Arguments
from .products import room, room_spec

KEPT = 512  # columns up to which scores are kept: backward takes a sixth less there, at 1,024 a fourteenth
KINDS = {4: 2, 8: 3, 1: 4}  # kinds of integer masks, by their bytes; 1 is a mask of floats, 0 none


def _attention(op: Attention | HeadsAttention) -> Attention:
    return op.attention if isinstance(op, HeadsAttention) else op


def buffers(op: Attention | HeadsAttention, shapes: Shapes) -> Buffers:
    x = op.apart(*shapes.x) if isinstance(op, HeadsAttention) else shapes.x
    op = _attention(op)
    (*front, t, d), (*_, s, _), (*_, e), *_ = x
    heads = prod(front)
    wide = -(-s // 16) * 16
    rows = rows_at_once(t, op.causal)
    level = ((heads, t, 2), FLOAT)
    scores = ((rows, wide), FLOAT)
    kept = {"kept": ((heads, t, wide), FLOAT)} if shapes.training and s <= KEPT else {}
    computed = {} if kept else {"scores": scores}
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


def arguments_of(call: Call, y: Array) -> Arguments:
    """The arguments that both directions take, but for those named as the call's arrays are; y may be its gradient."""
    whole, mask = _views(call.op, call.x, y)
    views = [each for each in whole if each is not None]
    op = _attention(call.op)
    q, k, v, _ = views
    *front, t, d = q.shape
    s = k.shape[-2]
    e = v.shape[-1]
    shown = np.broadcast_to(np.zeros((), np.float32) if mask is None else mask, (*front, t, s))
    places = np.stack([_places(view) for view in (*views, shown)], 1)
    rows = {f"{name}_row": view.strides[-2] for name, view in zip("qkvy", views, strict=True)}
    return {
        "q": q,
        "k": k,
        "v": v,
        "y": y,
        "mask": mask,
        "kind": 0 if mask is None else _kind(mask),
        "mask_row": shown.strides[-2],
        "mask_step": shown.strides[-1] // shown.itemsize,
        "place": call.scratch["room"],
        "places": places,
        "t": t,
        "s": s,
        "d": d,
        "e": e,
        **rows,
        "causal": op.causal,
        "scale": op.scale,
    }


Views = list[Array | None]  # (..., t, d); None for a gradient that is not needed


def _views(op: Attention | HeadsAttention, arrays: Sequence[Array | None], y: Array) -> tuple[Views, Array | None]:
    """q, k and v, or their gradients, and y, all of them head by head; and the mask, if there is one."""
    masks = arrays[1 if isinstance(op, HeadsAttention) and op.packed else 3 :]
    mask = masks[0] if masks else None
    if isinstance(op, Attention):
        return [*arrays[:3], y], mask
    three: Views = [*arrays[:3]]
    if op.packed:
        three = [None] * 3 if arrays[0] is None else [*np.split(arrays[0], 3, -1)]
    # Side by side in every position: the distance of rows separates heads.
    apart = [
        None if each is None else each.reshape(*each.shape[:2], op.heads, -1).swapaxes(1, 2) for each in (*three, y)
    ]
    return apart, mask


def backward(call: Call) -> Run:
    (dq, dk, dv, _), dmask = _views(call.op, call.dx, call.dy)
    return attend.on(call, back=True, dq=dq, dk=dk, dv=dv, dmask=dmask, **arguments_of(call, call.dy))


KERNELS = dict.fromkeys(
    (Attention, HeadsAttention),
    Kernel(lambda call: attend.on(call, back=False, **arguments_of(call, call.y)), backward, buffers),
)
