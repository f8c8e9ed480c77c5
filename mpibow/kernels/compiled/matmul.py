"""Products of tensors' matrices, and dense layers of many rows, such as all positions of a sequence."""

from dataclasses import replace
from math import prod

import numpy as np

from mpibow.graph import Array, Buffers, Call, Formats, Kernel, Run, Shapes, Tags, canonical_formats
from mpibow.ops import Dense, Matmul
from mpibow.ops.fused import TurnedMatmul

from .command import Command, together
from .native import Arguments
from .panels import WIDE
from .products import column_sums, multiply, multiply_laid, room, room_spec
from .vectors import LINE

TILES = "AB16b16a"  # the layout of weights of whole blocks: (units / 16, inputs, 16)


def multiplied(
    left: Array, right: Array, out: Array, place: Array, more: Array | None = None, **others: int
) -> Command:
    """out (..., m, n) <- left (..., m, k) right (..., k, n) + more, a row (n,); `place` is scratch.

    Axes in front are one, or evenly spaced; one of each factor's last two axes is contiguous. `others` are arguments of
    `multiply` in place of what strides say.
    """
    sides: Arguments = {"left": left, "right": right, "out": out}
    (row, step), (right_row, right_between), (out_row, _) = (side.strides[-2:] for side in sides.values())
    assert 4 in (row, step), left.strides
    assert 4 in (right_row, right_between), right.strides
    assert out.strides[-1] == 4, out.strides
    strides: Arguments = {f"{name}_step": side.strides[0] if side.ndim > 2 else 0 for name, side in sides.items()}
    strides |= {"row": row, "step": step, "right_row": right_row, "right_between": right_between, "out_row": out_row}
    (m, k) = left.shape[-2:]
    count = out.shape[0] if out.ndim > 2 else 1
    return multiply.command(
        more=more, place=place, count=count, m=m, n=right.shape[-1], k=k, **sides, **strides | others
    )


def into_tiles(x: Array, dy: Array, dw: Array, place: Array) -> Command:
    """dw, as TILES, <- dy^T x."""
    inputs = x.shape[1]
    return multiplied(x.T, dy, dw.reshape(inputs, -1), place, out_row=LINE, out_line=inputs * LINE)


def rows(array: Array) -> Array:
    """(..., m, k) as one matrix."""
    return array.reshape(-1, array.shape[-1])


def turned(array: Array) -> Array:
    return np.swapaxes(array, -1, -2)


def _turns(op: Matmul | TurnedMatmul) -> tuple[bool, bool]:
    return op.turned if isinstance(op, TurnedMatmul) else (False, False)


def matmul_buffers(op: Matmul | TurnedMatmul, shapes: Shapes) -> Buffers:
    first, second = _turns(op)
    a, b = op.straight(*shapes.x) if isinstance(op, TurnedMatmul) else shapes.x
    m = prod(a[:-1]) if len(b) == 2 else a[-2]
    n = b[-1]
    k = a[-1]
    of_a = room(k, m, n, transposed=second) if first else room(m, k, n)
    of_b = room(n, k, m, transposed=True) if second else room(k, n, m, transposed=not first)
    return Buffers(
        forward={"room": room_spec(room(m, n, k, transposed=first))},
        backward={"room": room_spec(of_a, of_b)} if shapes.training else {},
    )


def _shaped(call: Call, array: Array) -> Array:
    """An array as (count, m, k); or as one matrix, with the rows of all its matrices, if the right factor is one."""
    return rows(array) if len(call.shapes.x[1]) == 2 else array.reshape(-1, *array.shape[-2:])


def _factors(call: Call) -> tuple[Array, Array]:
    """The two factors, transposed where the operator requires it."""
    left, right = (_shaped(call, each) for each in call.x)
    first, second = _turns(call.op)
    return turned(left) if first else left, turned(right) if second else right


def matmul_backward(call: Call) -> Run:
    place = call.scratch["room"]
    runs = []
    first, second = _turns(call.op)
    left, right = _factors(call)
    dy = _shaped(call, call.dy)
    da, db = call.dx
    if da is not None:
        factors = (right, turned(dy)) if first else (dy, turned(right))
        runs.append(multiplied(*factors, _shaped(call, da), place))
    if db is not None:
        factors = (turned(dy), left) if second else (turned(left), dy)
        runs.append(multiplied(*factors, _shaped(call, db), place))
    return together(runs)


def _in_tiles(op: Dense, shapes: Shapes) -> bool:
    """Whether weights lie as panels, which forward need not pack. With AVX2 forward gains less than backward loses."""
    return WIDE > 1 and op.units % 16 == shapes.x[0][-1] % 16 == 0


def dense_formats(op: Dense, shapes: Shapes, given: Tags) -> Formats:
    return replace(canonical_formats(op, shapes, given), w={"weight": TILES} if _in_tiles(op, shapes) else {})


def dense_buffers(op: Dense, shapes: Shapes) -> Buffers:
    *front, features = shapes.x[0]
    n = op.units
    m = prod(front)
    of_weight = (features, n) if _in_tiles(op, shapes) else (n, features)
    return Buffers(
        forward={"room": room_spec(room(m, n, features))},
        backward={"room": room_spec(room(m, features, n), room(*of_weight, m, transposed=True))},
    )


def dense_forward(call: Call) -> Run:
    x = rows(call.x0)
    weight = call.w["weight"]
    bias = call.w.get("bias")
    if _in_tiles(call.op, call.shapes):
        m, k = x.shape
        return multiply_laid.command(left=x, right=weight, out=call.y, more=bias, m=m, n=call.op.units, k=k)
    return multiplied(x, weight.T, rows(call.y), call.scratch["room"], bias)


def dense_backward(call: Call) -> Run:
    x = rows(call.x0)
    dy = rows(call.dy)
    dx = call.dx[0]
    place = call.scratch["room"]
    inputs = x.shape[1]
    tiled = _in_tiles(call.op, call.shapes)
    runs = []
    if call.dw:
        dw = call.dw["weight"]
        runs.append(into_tiles(x, dy, dw, place) if tiled else multiplied(dy.T, x, dw, place))
    if "bias" in call.dw:
        runs.append(column_sums.command(x=dy, sums=call.dw["bias"]))
    if dx is not None:
        lie = {"right_row": 4 * inputs, "right_between": LINE} if tiled else {}
        runs.append(multiplied(dy, call.w["weight"].reshape(-1, inputs), rows(dx), place, **lie))
    return together(runs)


KERNELS = dict.fromkeys(
    (Matmul, TurnedMatmul),
    Kernel(
        lambda call: multiplied(*_factors(call), _shaped(call, call.y), call.scratch["room"]),
        matmul_backward,
        matmul_buffers,
    ),
)
