"""Scaled dot-product attention, some rows of the scores at a time: the matrix (t, s) of a head is never in memory.

Scores of few columns are kept from forward to backward. Backward computes the others again, from the largest score and
the factor of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numba
import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.arguments import Address, Floats, Single, Words
from mpibow.kernels.compiled.code_cache import shared
from mpibow.kernels.compiled.command import floats, integers, native, octets, words
from mpibow.kernels.compiled.numeric import as_float, exp, inlined
from mpibow.kernels.compiled.products import product, room, room_spec
from mpibow.ops import Attention

_f = np.float32
FEW, ROWS = 32, 128  # of scores at a time: few where causal and short, so that fewer are computed in vain
KEPT = 512  # columns up to which scores are kept: backward takes a sixth less there, at 1,024 a fourteenth
KINDS = {4: 2, 8: 3, 1: 4}  # kinds of integer masks, by their bytes; 1 is a mask of floats, 0 none
LOW, TURN = np.int32(-(2**31)), np.int32(0x7FFFFFFF)
LOWEST = np.finfo(np.float32).min


@inlined
def _masked(x: Any, kind: int, mask: int, step: int, columns: int) -> None:
    """Masks a row's x (columns,). The mask's elements are `step` apart: 1, or 0 for one element for all columns."""
    if kind == 1:
        added = floats(mask, columns)
        for j in range(columns):
            x[j] += added[j * step]
        return
    for j in range(columns):
        if kind == 2:
            seen = integers(mask, columns)[j * step] != 0
        elif kind == 3:
            seen = words(mask, columns)[j * step] != 0
        else:
            seen = octets(mask, columns)[j * step] != 0
        x[j] = x[j] if seen else _f(-np.inf)


@inlined
def _scaled(x: Any, scale: Any, columns: int, size: int) -> None:
    """x <- scale x, -inf from `columns` to `size`."""
    for j in range(size):
        x[j] = scale * x[j] if j < columns else _f(-np.inf)


@inlined
def _largest(address: int, size: int) -> Any:
    """The largest float, compared as integers, in any order of vectors: below 0 larger floats are smaller integers."""
    x, best = integers(address, size), LOW
    for j in range(size):
        best = max(best, np.int32(x[j] ^ ((x[j] >> np.int32(31)) & TURN)))
    return as_float(np.int32(best ^ ((best >> np.int32(31)) & TURN)))


@inlined
def _softened(x: Any, largest: Any, size: int) -> Any:
    """x <- exp(x - largest); returns its sum."""
    total = _f(0)
    for j in range(size):
        x[j] = exp(x[j] - largest)
        total += x[j]
    return total


@inlined
def _times(x: Any, factor: Any, size: int) -> None:
    for j in range(size):
        x[j] *= factor


@inlined
def _slopes(p: Any, d: Any, scale: Any, columns: int, size: int) -> None:
    """d <- scale p (d - the sum of p d): the gradient through a softmax."""
    along = _f(0)
    for j in range(columns):
        along += p[j] * d[j]
    for j in range(size):
        d[j] = scale * (p[j] * (d[j] - along)) if j < columns else _f(0)


@inlined
def _add_slopes(p: Any, d: Any, dmask: Any, at: int, step: int, columns: int) -> None:
    """Adds p (d - the sum of p d) to the gradient of a mask's row, whose elements are `step` apart, as in _masked."""
    along = _f(0)
    for j in range(columns):
        along += p[j] * d[j]
    for j in range(columns):
        dmask[at + j * step] += p[j] * (d[j] - along)


@shared
def _scores(
    q: int, k: int, p: int, rows: int, columns: int, depth: int, q_row: int, k_row: int, p_row: int, place: int,
    top: int, causal: int, scale: Any, kind: int, mask: int, mask_row: int, mask_step: int, level: int, again: int,
) -> None:  # fmt: skip
    """p (rows, columns) of the rows from `top` on, 0 up to the next multiple of 16. `level` has every row's largest
    score and factor; they are read if the scores are computed `again`."""
    product(q, k, p, rows, columns, depth, q_row, 4, 4, k_row, p_row, 0, 0, place)
    size = (columns + 15) // 16 * 16
    for i in range(rows):
        x, own = floats(p + i * p_row, size), min(columns, top + i + 1) if causal else columns
        levels = floats(level + 8 * i, 2)
        _scaled(x, scale, own, size)
        if kind:
            _masked(x, kind, mask + i * mask_row, mask_step, own)
        if again:
            _softened(x, levels[0], size)
        else:
            levels[0] = max(_largest(p + i * p_row, size), LOWEST)
            total = _softened(x, levels[0], size)
            levels[1] = _f(0) if total == _f(0) else _f(1) / total  # 0 where all columns are hidden
        _times(x, levels[1], size)


@native
def attend(
    q: Address, k: Address, v: Address, y: Address, level: Address, place: Address, places: Words, heads: int, t: int,
    s: int, d: int, e: int, q_row: int, k_row: int, v_row: int, y_row: int, kind: int, mask_row: int, mask_step: int,
    causal: bool, scale: Single, tall: int, mask: Address = None, kept: Address = None, scores: Address = None,
) -> None:  # fmt: skip
    """y = softmax(scale q k^T + mask) v of every head, `tall` rows at a time.

    places (heads, 5) are the bytes from the arrays' beginnings to those of each head in q, k, v, y and the mask; rows
    are the bytes from row to row. kept (heads, t, columns), whose rows are whole vectors, has the scores, if any.
    """
    p_row = (s + 15) // 16 * 64
    for head in range(heads):
        at = places[5 * head : 5 * head + 5]
        for top in range(0, t, tall):
            rows = min(tall, t - top)
            columns = min(s, top + rows) if causal else s
            line = head * t + top
            p = kept + line * p_row if kept else scores
            _scores(
                q + at[0] + top * q_row, k + at[1], p, rows, columns, d, q_row, k_row, p_row, place, top, causal, scale,
                kind, mask + at[4] + top * mask_row, mask_row, mask_step, level + 8 * line, False,
            )  # fmt: skip
            product(p, v + at[2], y + at[3] + top * y_row, rows, e, columns, p_row, 4, v_row, 4, y_row, 0, 0, place)


@numba.njit(inline="always")
def _clear(address: int, rows: int, columns: int, row: int) -> None:
    for i in range(rows):
        floats(address + i * row, columns)[:] = 0


@native
def attend_back(
    dy: Address, q: Address, k: Address, v: Address, level: Address, slopes: Address, place: Address, places: Words,
    heads: int, t: int, s: int, d: int, e: int, q_row: int, k_row: int, v_row: int, y_row: int, kind: int,
    mask_row: int, mask_step: int, causal: bool, scale: Single, tall: int, mask: Address = None, kept: Address = None,
    scores: Address = None, dq: Address = None, dk: Address = None, dv: Address = None, dmask: Floats = None,
) -> None:  # fmt: skip
    """Those of dq, dk, dv and dmask that are wanted, with the layouts of q, k, v and the mask; see `attend`."""
    p_row = (s + 15) // 16 * 64
    dmask[:] = 0
    for head in range(heads):
        at = places[5 * head : 5 * head + 5]
        whole = t <= tall and (not causal or s <= t)  # one product makes all of dk, and one of dv
        dk_here, dv_here = dk + at[1], dv + at[2]
        if dk and not whole:
            _clear(dk_here, s, d, k_row)
        if dv and not whole:
            _clear(dv_here, s, e, v_row)
        dk_more, dv_more = 0 if whole else dk_here, 0 if whole else dv_here
        for top in range(0, t, tall):
            rows = min(tall, t - top)
            columns = min(s, top + rows) if causal else s
            line, dy_here, q_here = head * t + top, dy + at[3] + top * y_row, q + at[0] + top * q_row
            p = kept + line * p_row if kept else scores
            if not kept:
                _scores(
                    q_here, k + at[1], p, rows, columns, d, q_row, k_row, p_row, place, top, causal, scale, kind,
                    mask + at[4] + top * mask_row, mask_row, mask_step, level + 8 * line, True,
                )  # fmt: skip
            if dv:
                product(p, dy_here, dv_here, columns, e, rows, 4, p_row, y_row, 4, v_row, dv_more, v_row, place)
            if dq == 0 and dk == 0 and len(dmask) == 0:
                continue
            product(dy_here, v + at[2], slopes, rows, columns, e, y_row, 4, 4, v_row, p_row, 0, 0, place)
            size = (columns + 15) // 16 * 16
            for i in range(rows):
                row, slope = floats(p + i * p_row, size), floats(slopes + i * p_row, size)
                if len(dmask):
                    _add_slopes(row, slope, dmask, (at[4] + (top + i) * mask_row) // 4, mask_step, columns)
                _slopes(row, slope, scale, columns, size)
            if dq:
                to = dq + at[0] + top * q_row
                product(slopes, k + at[1], to, rows, d, columns, p_row, 4, k_row, 4, q_row, 0, 0, place)
            if dk:
                product(slopes, q_here, dk_here, columns, d, rows, 4, p_row, q_row, 4, k_row, dk_more, k_row, place)


def _heads(shapes: Shapes) -> tuple[int, int, int, int, int]:
    """The number of heads, t, s, d and e."""
    (*front, t, d), (*_, s, _), (*_, e), *_ = shapes.x
    return prod(front), t, s, d, e


def _rows(op: Attention, t: int) -> int:
    return min(FEW if op.causal and t <= 2 * ROWS else ROWS, t)


def buffers(op: Attention, shapes: Shapes) -> Buffers:
    heads, t, s, d, e = _heads(shapes)
    wide, rows = -(-s // 16) * 16, _rows(op, t)
    level: dict[str, Spec] = {"level": ((heads, t, 2), FLOAT)}
    kept: dict[str, Spec] = {"kept": ((heads, t, wide), FLOAT)} if shapes.training and s <= KEPT else {}
    scores: dict[str, Spec] = {} if kept else {"scores": ((rows, wide), FLOAT)}
    forward = {**scores, "room": room_spec(room(rows, s, d), room(rows, e, s))}
    sizes = [room(rows, s, max(d, e)), room(rows, d, s), room(s, max(d, e), rows, transposed=True)]
    backward = {**scores, "slopes": ((rows, wide), FLOAT), "room": room_spec(*sizes)}
    return Buffers(saved={**level, **kept}, forward=forward, backward=backward)


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


def arguments_of(call: Call, op: Attention, views: Sequence[Array], masks: Sequence[Array]) -> dict[str, Any]:
    """The arguments that both kernels take, but for those named as the call's arrays are.

    The views (..., t, d) are q, k, v, and y or its gradient.
    """
    q, k, v, _ = views
    (*front, t, d), s, e = q.shape, k.shape[-2], v.shape[-1]
    shown = np.broadcast_to(masks[0] if masks else _f(0), (*front, t, s))
    places = np.stack([_places(view) for view in (*views, shown)], 1)
    rows = {f"{name}_row": view.strides[-2] for name, view in zip("qkvy", views, strict=True)}
    return {
        "q": q, "k": k, "v": v, "mask": masks[0] if masks else None, "kind": _kind(masks[0]) if masks else 0,
        "mask_row": shown.strides[-2], "mask_step": shown.strides[-1] // shown.itemsize, "place": call.scratch["room"],
        "places": places, "heads": len(places), "t": t, "s": s, "d": d, "e": e, **rows, "causal": op.causal,
        "scale": op.scale, "tall": _rows(op, t),
    }  # fmt: skip


def forward(call: Call) -> Run:
    return attend.on(call, **arguments_of(call, call.op, [*call.x[:3], call.y], call.x[3:]))


def backward(call: Call) -> Run:
    dq, dk, dv, *dmasks = call.dx
    given = arguments_of(call, call.op, [*call.x[:3], call.dy], call.x[3:])
    return attend_back.on(call, dq=dq, dk=dk, dv=dv, dmask=dmasks[0] if dmasks else None, **given)
