"""LSTM and GRU: the inputs of all steps at once, then step by step a product and a pass over the gates.

Arrays over steps are (n, t, units), those of gates (n, t, gates * units): i, f, g and o of an LSTM, r, z and m of a GRU
that has the last output's part of m in `inner`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes, Spec
from mpibow.kernels.compiled.arguments import Address
from mpibow.kernels.compiled.command import floats, native, together
from mpibow.kernels.compiled.matmul import multiplied, rows
from mpibow.kernels.compiled.numeric import inlined, sigmoid, tanh
from mpibow.kernels.compiled.products import by_laid_out, column_sums, copied, laid_out, lay_out, room, room_spec
from mpibow.ops import Gru, Lstm

_f = np.float32
Gates = Literal[3, 4]
KEPT = {4: ("cells", "tanhs"), 3: ("inner",)}  # beside the gates, by their number


@inlined
def _open(address: int, bias: int, units: int) -> None:
    """A gate <- its sigmoid, with a bias."""
    x, b = floats(address, units), floats(bias, units)
    for j in range(units):
        x[j] = sigmoid(x[j] + b[j])


@inlined
def _before(last: int, first: int, offset: int, step: int) -> int:
    """The address of a sample's state of the step before; 0 for none."""
    if step:
        return last
    return first + offset if first else 0


@native
def run_steps(
    number: Gates,
    gates: Address,
    y: Address,
    last: Address,
    weight: Address,
    bias: Address,
    laid: Address,
    n: int,
    t: int,
    units: int,
    cells: Address = None,
    tanhs: Address = None,
    cell: Address = None,
    inner: Address = None,
    part: Address = None,
    first: Address = None,
    first_cell: Address = None,
) -> None:
    """y, and the last y and c (n, units). `gates` contain the inputs' part at first, then the activated gates; `part`
    (n, 3 units) is scratch of a GRU. The first y and c are 0 where they are no arrays."""
    one, row, wide = 4 * units, 4 * number * units, number * units  # bytes of a gate, and of all
    lay_out(weight, laid, wide, units, 4, one)
    for step in range(t):
        here, between = gates + step * row, t * row
        to, to_row, more, more_row = (here, between, here, between) if number == 4 else (part, row, bias, 0)
        before, before_row = (y + (step - 1) * one, t * one) if step else (first, one)
        if before:
            by_laid_out(before, laid, to, n, wide, units, before_row, to_row, more, more_row)
        for i in range(n):
            gate, at = gates + (i * t + step) * row, (i * t + step) * one
            if number == 4:
                past = _before(cells + at - one, first_cell, i * one, step)
                _remember(gate, bias, cells + at, past, units)
                _let_out(gate + 3 * one, bias + 3 * one, cells + at, tanhs + at, y + at, units)
            else:
                said = part + i * row if before else bias
                _mix(gate, said, inner + at, y + at, _before(y + at - one, first, i * one, step), units)
    for i in range(n):
        at = ((i + 1) * t - 1) * one
        copied(y + at, last + i * one, units)
        if number == 4:
            copied(cells + at, cell + i * one, units)


@inlined
def _remember(gate: int, bias: int, cell: int, before: int, units: int) -> None:
    """Opens i and f, g <- its tanh; c <- f c before + i g; before is 0 for none."""
    one = 4 * units
    _open(gate, bias, units)
    _open(gate + one, bias + one, units)
    i, f, g = floats(gate, units), floats(gate + one, units), floats(gate + 2 * one, units)
    c, b = floats(cell, units), floats(bias + 2 * one, units)
    for j in range(units):
        g[j] = tanh(g[j] + b[j])
    if before:
        past = floats(before, units)
        for j in range(units):
            c[j] = f[j] * past[j] + i[j] * g[j]
    else:
        for j in range(units):
            c[j] = i[j] * g[j]


@inlined
def _let_out(gate: int, bias: int, cell: int, tanhs: int, y: int, units: int) -> None:
    _open(gate, bias, units)
    o, c, h, out = floats(gate, units), floats(cell, units), floats(tanhs, units), floats(y, units)
    for j in range(units):
        h[j] = tanh(c[j])
    for j in range(units):
        out[j] = o[j] * h[j]


@inlined
def _mix(gate: int, said: int, inner: int, y: int, before: int, units: int) -> None:
    """Opens r and z, m <- tanh(m + r inner), y <- m + z (y before - m); before is 0 for none."""
    one = 4 * units
    _open(gate, said, units)
    _open(gate + one, said + one, units)
    copied(said + 2 * one, inner, units)
    r, z, m = floats(gate, units), floats(gate + one, units), floats(gate + 2 * one, units)
    own, out = floats(inner, units), floats(y, units)
    for j in range(units):
        m[j] = tanh(m[j] + r[j] * own[j])
    if before:
        past = floats(before, units)
        for j in range(units):
            out[j] = m[j] + z[j] * (past[j] - m[j])
    else:
        for j in range(units):
            out[j] = m[j] - z[j] * m[j]


@native
def return_steps(
    number: Gates,
    gates: Address,
    y: Address,
    dy: Address,
    dlast: Address,
    weight: Address,
    dgates: Address,
    dinner: Address,
    past: Address,
    dh: Address,
    laid: Address,
    n: int,
    t: int,
    units: int,
    cells: Address = None,
    tanhs: Address = None,
    dcell: Address = None,
    dc: Address = None,
    inner: Address = None,
    first: Address = None,
    first_cell: Address = None,
) -> None:
    """The gradients of the gates, for the inputs and, in `dinner`, for the last output, which are an LSTM's same; and
    past, y of the step before. dh and dc (n, units) become the gradients of the first y and c, where these are arrays.
    """
    one, row = 4 * units, 4 * number * units
    lay_out(weight, laid, units, number * units, one, 4)
    copied(dlast, dh, n * units)
    if number == 4:
        copied(dcell, dc, n * units)
    for step in range(t - 1, -1, -1):
        for i in range(n):
            at, offset = (i * t + step) * one, i * one
            gate, dgate, h, c = gates + number * at, dgates + number * at, dh + offset, dc + offset
            before = _before(y + at - one, first, offset, step)
            floats(past + at, units)[:] = 0
            if before:
                copied(before, past + at, units)
            if number == 4:
                _let_out_back(gate + 3 * one, dgate + 3 * one, tanhs + at, dy + at, h, c, units)
                _remember_back(gate, dgate, c, _before(cells + at - one, first_cell, offset, step), units)
            else:
                _mix_back(gate, dgate, dinner + 3 * at, inner + at, past + at, dy + at, h, units)
        if step or first:
            more, more_row = (0, 0) if number == 4 else (dh, one)
            by_laid_out(dinner + step * row, laid, dh, n, units, number * units, t * row, one, more, more_row)


@inlined
def _let_out_back(gate: int, dgate: int, tanhs: int, dy: int, dh: int, dc: int, units: int) -> None:
    """The gradients of o and c from the gradients of y: the step's own, and those from later steps."""
    o, do, h, dc_ = floats(gate, units), floats(dgate, units), floats(tanhs, units), floats(dc, units)
    here, behind = floats(dy, units), floats(dh, units)
    for j in range(units):
        do[j] = here[j] + behind[j]
    for j in range(units):
        dc_[j] += do[j] * (o[j] * (_f(1) - h[j] * h[j]))
    for j in range(units):
        do[j] *= h[j] * (o[j] * (_f(1) - o[j]))


@inlined
def _remember_back(gate: int, dgate: int, dc: int, before: int, units: int) -> None:
    """The gradients of i, f, g and the c of the step before, from the gradient of c."""
    one = 4 * units
    i, f, g, d = floats(gate, units), floats(gate + one, units), floats(gate + 2 * one, units), floats(dc, units)
    di, df, dg = floats(dgate, units), floats(dgate + one, units), floats(dgate + 2 * one, units)
    for j in range(units):
        di[j] = d[j] * g[j] * (i[j] * (_f(1) - i[j]))
    for j in range(units):
        dg[j] = d[j] * i[j] * (_f(1) - g[j] * g[j])
    if before:
        past = floats(before, units)
        for j in range(units):
            df[j] = d[j] * past[j] * (f[j] * (_f(1) - f[j]))
    else:
        df[:] = _f(0)
    for j in range(units):
        d[j] *= f[j]


@inlined
def _mix_back(gate: int, dgate: int, dinner: int, inner: int, past: int, dy: int, dh: int, units: int) -> None:
    """The gradients of r, z and m; dinner, the same but for a factor r of m's; the last output's gradient through z."""
    one = 4 * units
    r, z, m = floats(gate, units), floats(gate + one, units), floats(gate + 2 * one, units)
    dr, dz, dm = floats(dgate, units), floats(dgate + one, units), floats(dgate + 2 * one, units)
    own, before, here, d = floats(inner, units), floats(past, units), floats(dy, units), floats(dh, units)
    for j in range(units):
        d[j] += here[j]
    for j in range(units):
        dz[j] = (before[j] - m[j]) * d[j] * (z[j] * (_f(1) - z[j]))
    for j in range(units):
        dm[j] = (_f(1) - m[j] * m[j]) * ((_f(1) - z[j]) * d[j])
    for j in range(units):
        dr[j] = dm[j] * own[j] * (r[j] * (_f(1) - r[j]))
    for j in range(units):
        d[j] *= z[j]
    copied(dgate, dinner, 2 * units)
    inside = floats(dinner + 2 * one, units)
    for j in range(units):
        inside[j] = dm[j] * r[j]


@native
def copy_all(source: Address, target: Address, size: int) -> None:
    """target <- source."""
    copied(source, target, size)


def _number(op: Lstm | Gru) -> Gates:
    return 4 if isinstance(op, Lstm) else 3


def buffers(op: Lstm | Gru, shapes: Shapes) -> Buffers:
    (n, t, units), number, features = shapes.y, _number(op), shapes.x[0][2]
    m, wide, one = n * t, number * units, ((n, units), FLOAT)
    gates: Spec = ((n, t, wide), FLOAT)
    kept: dict[str, Spec] = {"gates": gates, **dict.fromkeys(KEPT[number], (shapes.y, FLOAT))}
    forward: dict[str, Spec] = {
        "room": room_spec(room(m, wide, features)),
        "laid": ((laid_out(wide, units),), FLOAT),
        **({} if number == 4 else {"part": ((n, wide), FLOAT)}),
    }
    rooms = [room(wide, each, m, transposed=True) for each in (features, units)]
    rooms += [room(m, features, wide)] if shapes.wanted else []
    backward: dict[str, Spec] = {
        "room": room_spec(*rooms),
        "laid": ((laid_out(units, wide),), FLOAT),
        "dgates": gates,
        "past": (shapes.y, FLOAT),
        "dh": one,
        **({"dc": one} if number == 4 else {"dinner": gates}),
    }
    return Buffers(saved=kept, forward=forward, backward=backward)


def _of_both(call: Call) -> dict[str, Any]:
    """The arguments that both directions have in common."""
    (n, t, units), number = call.y.shape, _number(call.op)
    return {
        "number": number, "gates": call.saved["gates"], "weight": call.w["weight_hh"], "laid": call.scratch["laid"],
        "n": n, "t": t, "units": units, **{name: call.saved[name] for name in KEPT[number]},
        **dict(zip(("first", "first_cell"), call.x[1:], strict=False)),
    }  # fmt: skip


def forward(call: Call) -> Run:
    outputs: dict[str, Any] = dict(zip(("y", "last", "cell"), call.ys, strict=False))
    gates, w, scratch = rows(call.saved["gates"]), call.w, call.scratch
    inputs = multiplied(rows(call.x[0]), w["weight_ih"].T, gates, scratch["room"], w["bias_ih"])
    return together(
        [inputs, run_steps.command(bias=w["bias_hh"], part=scratch.get("part"), **outputs, **_of_both(call))]
    )


def backward(call: Call) -> Run:
    scratch, dw, (dx, *dfirst), place = call.scratch, call.dw, call.dx, call.scratch["room"]
    dgates, dh, dc = scratch["dgates"], scratch["dh"], scratch.get("dc")
    dinner = scratch.get("dinner", dgates)
    gradients: dict[str, Any] = dict(zip(("dy", "dlast", "dcell"), call.dys, strict=False))
    through = return_steps.command(
        y=call.y, dgates=dgates, dinner=dinner, past=scratch["past"], dh=dh, dc=dc, **gradients, **_of_both(call)
    )
    states = [
        copy_all.command(source=source, target=target, size=target.size)
        for source, target in zip((dh, dc), dfirst, strict=False)
        if target is not None
    ]
    outer, inner, x, past = rows(dgates), rows(dinner), rows(call.x[0]), rows(scratch["past"])
    weights = [
        multiplied(outer.T, x, dw["weight_ih"], place),
        multiplied(inner.T, past, dw["weight_hh"], place),
        column_sums.command(x=outer, sums=dw["bias_ih"], rows=len(outer), columns=outer.shape[1]),
        column_sums.command(x=inner, sums=dw["bias_hh"], rows=len(inner), columns=inner.shape[1]),
    ]
    if dx is not None:
        weights.append(multiplied(outer, call.w["weight_ih"], rows(dx), place))
    return together([through, *states, *weights])


KERNEL = Kernel(forward, backward, buffers)
