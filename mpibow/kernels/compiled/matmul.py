"""Products of tensors' matrices, and dense layers of many rows, such as all positions of a sequence."""

from math import prod

import numpy as np

from mpibow.graph import Array, Buffers, Call, Kernel, Run, Shapes
from mpibow.ops import Dense, Matmul
from mpibow.ops.fused import TurnedMatmul

from .command import Command, together
from .products import column_sums, multiply, room, room_spec


def multiplied(left: Array, right: Array, out: Array, place: Array, more: Array | None = None) -> Command:
    """out (..., m, n) <- left (..., m, k) right (..., k, n) + more, a row (n,); `place` is scratch.

    Axes in front are one, or evenly spaced; one of each factor's last two axes is contiguous.
    """
    (m, k) = left.shape[-2:]
    n = right.shape[-1]
    matrices = out.shape[0] if out.ndim > 2 else 1
    left_step, right_step, out_step = (array.strides[0] if array.ndim > 2 else 0 for array in (left, right, out))
    (row, step) = left.strides[-2:]
    (right_row, right_between) = right.strides[-2:]
    assert 4 in (row, step), left.strides
    assert 4 in (right_row, right_between), right.strides
    assert out.strides[-1] == 4, out.strides
    return multiply.command(
        left=left,
        right=right,
        out=out,
        more=more,
        place=place,
        count=matrices,
        left_step=left_step,
        right_step=right_step,
        out_step=out_step,
        m=m,
        n=n,
        k=k,
        row=row,
        step=step,
        right_row=right_row,
        right_between=right_between,
        out_row=out.strides[-2],
    )


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


def dense_buffers(op: Dense, shapes: Shapes) -> Buffers:
    *front, features = shapes.x[0]
    n = op.units
    m = prod(front)
    return Buffers(
        forward={"room": room_spec(room(m, n, features))},
        backward={"room": room_spec(room(m, features, n), room(n, features, m, transposed=True))},
    )


def dense_forward(call: Call) -> Run:
    return multiplied(rows(call.x0), call.w["weight"].T, rows(call.y), call.scratch["room"], call.w.get("bias"))


def dense_backward(call: Call) -> Run:
    x = rows(call.x0)
    dy = rows(call.dy)
    dx = call.dx[0]
    place = call.scratch["room"]
    runs = [multiplied(dy.T, x, call.dw["weight"], place)] if call.dw else []
    if "bias" in call.dw:
        runs.append(column_sums.command(x=dy, sums=call.dw["bias"]))
    if dx is not None:
        runs.append(multiplied(dy, call.w["weight"], rows(dx), place))
    return together(runs)


KERNELS = dict.fromkeys(
    (Matmul, TurnedMatmul),
    Kernel(
        lambda call: multiplied(*_factors(call), _shaped(call, call.y), call.scratch["room"]),
        matmul_backward,
        matmul_buffers,
    ),
)
