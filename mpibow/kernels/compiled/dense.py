"""Dense layers of many rows, such as all positions of a sequence: three products."""

from __future__ import annotations

from math import prod

from mpibow.graph.kernel import Buffers, Call, Run, Shapes
from mpibow.kernels.compiled.command import together
from mpibow.kernels.compiled.matmul import multiplied, rows
from mpibow.kernels.compiled.products import column_sums, room, room_spec
from mpibow.ops import Dense


def buffers(op: Dense, shapes: Shapes) -> Buffers:
    (*front, features), n = shapes.x[0], op.units
    m = prod(front)
    return Buffers(
        forward={"room": room_spec(room(m, n, features))},
        backward={"room": room_spec(room(m, features, n), room(n, features, m, transposed=True))},
    )


def forward(call: Call) -> Run:
    return multiplied(rows(call.x[0]), call.w["weight"].T, rows(call.y), call.scratch["room"], call.w.get("bias"))


def backward(call: Call) -> Run:
    x, dy, dx, place = rows(call.x[0]), rows(call.dy), call.dx[0], call.scratch["room"]
    runs = [multiplied(dy.T, x, call.dw["weight"], place)] if call.dw else []
    if "bias" in call.dw:
        runs.append(column_sums.command(x=dy, sums=call.dw["bias"], rows=len(dy), columns=dy.shape[1]))
    if dx is not None:
        runs.append(multiplied(dy, call.w["weight"], rows(dx), place))
    return together(runs)
