"""Scaled dot-product attention, some rows of the scores at a time: the matrix (t, s) of a head is never in memory.

Scores of few columns are kept from forward to backward. Backward computes the others again, from the largest score and
the factor of each row.
"""

import numba
import numpy as np

from mpibow.graph import Array

from .native import Address, Back, Floats, Single, Words, floats, integers, native, octets, words
from .numeric import exp, inlined, largest
from .products import product
from .vectors import LINE

_f = np.float32
LOWEST = np.finfo(np.float32).min
FEW = 32
ROWS = 128


@inlined
def _masked(x: Array, kind: int, mask: int, step: int, columns: int) -> None:
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
def _scaled(x: Array, scale: float, columns: int, size: int) -> None:
    """x <- scale x, -inf from `columns` to `size`."""
    for j in range(size):
        x[j] = scale * x[j] if j < columns else _f(-np.inf)


@inlined
def _softened(x: Array, best: np.float32, size: int) -> np.float32:
    """x <- exp(x - best); returns its sum."""
    total = _f(0)
    for j in range(size):
        x[j] = exp(x[j] - best)
        total += x[j]
    return total


@inlined
def _times(x: Array, factor: np.float32, size: int) -> None:
    for j in range(size):
        x[j] *= factor


@inlined
def _slopes(p: Array, d: Array, dmask: Array, at: int, step: int, scale: float, columns: int, size: int) -> None:
    """d <- scale p (d - the sum of p d): the gradient through a softmax. The same without the scale is added to the
    gradient of a mask's row, if there is one, whose elements are `step` apart, as in _masked."""
    along = _f(0)
    for j in range(columns):
        along += p[j] * d[j]
    for j in range(columns if len(dmask) else 0):
        dmask[at + j * step] += p[j] * (d[j] - along)
    for j in range(size):
        d[j] = scale * (p[j] * (d[j] - along)) if j < columns else _f(0)


def rows_at_once(t: int, causal: bool) -> int:
    """Of t rows of scores: few where causal and short, so that fewer are computed in vain."""
    return min(FEW if causal and t <= 2 * ROWS else ROWS, t)


_rows_at_once = numba.njit(inline="always")(rows_at_once)


@numba.njit(inline="always")
def _clear(address: int, rows: int, columns: int, row: int) -> None:
    for i in range(rows):
        floats(address + i * row, columns)[:] = 0


@native
def attend(
    back: Back,
    q: Address,
    k: Address,
    v: Address,
    y: Address,
    level: Address,
    place: Address,
    places: Words,
    t: int,
    s: int,
    d: int,
    e: int,
    q_row: int,
    k_row: int,
    v_row: int,
    y_row: int,
    kind: int,
    mask_row: int,
    mask_step: int,
    causal: bool,
    scale: Single,
    mask: Address = None,
    kept: Address = None,
    scores: Address = None,
    slopes: Address = None,
    dq: Address = None,
    dk: Address = None,
    dv: Address = None,
    dmask: Floats = None,
) -> None:
    """y = softmax(scale q k^T + mask) v of every head, some rows at a time. Or, if `back`, of y's gradient y those of
    dq, dk, dv and dmask that are wanted, with the layouts of q, k, v and the mask.

    places (heads, 5) are the bytes from the arrays' beginnings to those of each head in q, k, v, y and the mask; rows
    are the bytes from row to row. kept (heads, t, columns), whose rows are whole vectors, has the scores, if any; they
    are 0 up to the next multiple of 16. `level` has every row's largest score and factor: backward makes them again.
    """
    p_row = (s + 15) // 16 * 64
    tall = _rows_at_once(t, causal)
    if back:
        dmask[:] = 0
    for head in range(len(places) // 5):
        at = places[5 * head : 5 * head + 5]
        whole = t <= tall and (not causal or s <= t)  # one product makes all of dk, and one of dv
        dk_here = dk + at[1]
        dv_here = dv + at[2]
        if back and dk and not whole:
            _clear(dk_here, s, d, k_row)
        if back and dv and not whole:
            _clear(dv_here, s, e, v_row)
        dk_more = 0 if whole else dk_here
        dv_more = 0 if whole else dv_here
        for top in range(0, t, tall):
            rows = min(tall, t - top)
            columns = min(s, top + rows) if causal else s
            line = head * t + top
            y_here = y + at[3] + top * y_row
            q_here = q + at[0] + top * q_row
            p = kept + line * p_row if kept else scores
            size = (columns + 15) // 16 * 16
            if not back or kept == 0:
                product(q_here, k + at[1], p, rows, columns, d, q_row, 4, 4, k_row, p_row, 0, 0, place, LINE)
                for i in range(rows):
                    x = floats(p + i * p_row, size)
                    own = min(columns, top + i + 1) if causal else columns
                    levels = floats(level + 8 * (line + i), 2)
                    _scaled(x, scale, own, size)
                    if kind:
                        _masked(x, kind, mask + at[4] + (top + i) * mask_row, mask_step, own)
                    if back:
                        _softened(x, levels[0], size)
                    else:
                        levels[0] = max(largest(integers(p + i * p_row, size)), LOWEST)
                        total = _softened(x, levels[0], size)
                        levels[1] = _f(0) if total == _f(0) else _f(1) / total  # 0 where all columns are hidden
                    _times(x, levels[1], size)
            if not back:
                product(p, v + at[2], y_here, rows, e, columns, p_row, 4, v_row, 4, y_row, 0, 0, place, LINE)
                continue
            if dv:
                product(p, y_here, dv_here, columns, e, rows, 4, p_row, y_row, 4, v_row, dv_more, v_row, place, LINE)
            if dq == 0 and dk == 0 and len(dmask) == 0:
                continue
            product(y_here, v + at[2], slopes, rows, columns, e, y_row, 4, 4, v_row, p_row, 0, 0, place, LINE)
            for i in range(rows):
                row = floats(p + i * p_row, size)
                slope = floats(slopes + i * p_row, size)
                beside = (at[4] + (top + i) * mask_row) // 4
                _slopes(row, slope, dmask, beside, mask_step, scale, columns, size)
            if dq:
                to = dq + at[0] + top * q_row
                product(slopes, k + at[1], to, rows, d, columns, p_row, 4, k_row, 4, q_row, 0, 0, place, LINE)
            if dk:
                product(
                    slopes, q_here, dk_here, columns, d, rows, 4, p_row, q_row, 4, k_row, dk_more, k_row, place, LINE
                )
