"""Long short-term memory: the inputs of all steps at once, then step by step a product and a pass over the gates."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.arguments import Address
from mpibow.kernels.compiled.command import Command, floats, native, together
from mpibow.kernels.compiled.matmul import multiplied, rows
from mpibow.kernels.compiled.numeric import inlined, sigmoid, tanh
from mpibow.kernels.compiled.products import by_laid_out, column_sums, copied, laid_out, lay_out, room, room_spec
from mpibow.ops import Lstm

_f = np.float32


@inlined
def opened(address: int, bias: int, units: int) -> None:
    """A gate <- its sigmoid, with a bias."""
    x, b = floats(address, units), floats(bias, units)
    for j in range(units):
        x[j] = sigmoid(x[j] + b[j])


@inlined
def bent(address: int, bias: int, units: int) -> None:
    """A gate <- its tanh, with a bias."""
    x, b = floats(address, units), floats(bias, units)
    for j in range(units):
        x[j] = tanh(x[j] + b[j])


@native
def remember(
    gates: Address,
    cells: Address,
    tanhs: Address,
    y: Address,
    last: Address,
    cell: Address,
    weight: Address,
    bias: Address,
    laid: Address,
    n: int,
    t: int,
    units: int,
    first: Address = None,
    first_cell: Address = None,
) -> None:
    """y = the outputs of all steps. gates (n, t, 4 units) contain the inputs' part at first, then the activated gates;
    cells, their tanhs and y are (n, t, units)."""
    one, row = 4 * units, 16 * units  # bytes of a gate, and of all four
    lay_out(weight, laid, 4 * units, units, 4, one)
    for step in range(t):
        here = gates + step * row
        if step:
            by_laid_out(y + (step - 1) * one, laid, here, n, 4 * units, units, t * one, t * row, here, t * row)
        elif first:
            by_laid_out(first, laid, here, n, 4 * units, units, one, t * row, here, t * row)
        for i in range(n):
            gate, at = gates + (i * t + step) * row, (i * t + step) * one
            opened(gate, bias, units)
            opened(gate + one, bias + one, units)
            bent(gate + 2 * one, bias + 2 * one, units)
            opened(gate + 3 * one, bias + 3 * one, units)
            _remember(gate, cells + at, before(cells + at - one, first_cell, i * one, step), units)
            _let_out(gate + 3 * one, cells + at, tanhs + at, y + at, units)
    for i in range(n):
        at = ((i + 1) * t - 1) * one
        copied(y + at, last + i * one, units)
        copied(cells + at, cell + i * one, units)


@inlined
def before(last: int, first: int, offset: int, step: int) -> int:
    """The address of a sample's state of the step before; 0 for none."""
    if step:
        return last
    return first + offset if first else 0


@inlined
def _remember(gate: int, cell: int, before: int, units: int) -> None:
    """c <- f c before + i g; before is 0 for none."""
    i, f, g = floats(gate, units), floats(gate + 4 * units, units), floats(gate + 8 * units, units)
    c = floats(cell, units)
    if before:
        past = floats(before, units)
        for j in range(units):
            c[j] = f[j] * past[j] + i[j] * g[j]
    else:
        for j in range(units):
            c[j] = i[j] * g[j]


@inlined
def _let_out(gate: int, cell: int, bent_cell: int, y: int, units: int) -> None:
    o, c, h, out = floats(gate, units), floats(cell, units), floats(bent_cell, units), floats(y, units)
    for j in range(units):
        h[j] = tanh(c[j])
    for j in range(units):
        out[j] = o[j] * h[j]


@native
def copy_all(source: Address, target: Address, size: int) -> None:
    """target <- source."""
    copied(source, target, size)


@native
def remember_back(
    gates: Address,
    cells: Address,
    tanhs: Address,
    y: Address,
    dy: Address,
    dlast: Address,
    dcell: Address,
    weight: Address,
    dgates: Address,
    past: Address,
    dh: Address,
    dc: Address,
    laid: Address,
    n: int,
    t: int,
    units: int,
    first: Address = None,
    first_cell: Address = None,
) -> None:
    """The gradients of the gates, and past (n, t, units), y of the step before; dh and dc (n, units) become those of
    the first h and c, where these are arrays."""
    one, row = 4 * units, 16 * units
    lay_out(weight, laid, units, 4 * units, one, 4)
    copied(dlast, dh, n * units)
    copied(dcell, dc, n * units)
    for step in range(t - 1, -1, -1):
        for i in range(n):
            at = (i * t + step) * one
            gate, dgate, h, c = gates + 4 * at, dgates + 4 * at, dh + i * one, dc + i * one
            _let_out_back(gate + 3 * one, dgate + 3 * one, tanhs + at, dy + at, h, c, units)
            _remember_back(gate, dgate, c, before(cells + at - one, first_cell, i * one, step), units)
            outset(past + at, before(y + at - one, first, i * one, step), units)
        if step or first:
            by_laid_out(dgates + step * row, laid, dh, n, units, 4 * units, t * row, one, 0, 0)


@inlined
def outset(past: int, before: int, units: int) -> None:
    """past <- before, or 0 where there is none."""
    floats(past, units)[:] = 0
    if before:
        copied(before, past, units)


@inlined
def _let_out_back(gate: int, dgate: int, bent_cell: int, dy: int, dh: int, dc: int, units: int) -> None:
    """The gradients of o and c from the gradients of y: the step's own, and those from later steps."""
    o, do, tanhs, dc_ = floats(gate, units), floats(dgate, units), floats(bent_cell, units), floats(dc, units)
    here, behind = floats(dy, units), floats(dh, units)
    for j in range(units):
        do[j] = here[j] + behind[j]
    for j in range(units):
        dc_[j] += do[j] * (o[j] * (_f(1) - tanhs[j] * tanhs[j]))
    for j in range(units):
        do[j] *= tanhs[j] * (o[j] * (_f(1) - o[j]))


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


def buffers(op: Lstm, shapes: Shapes) -> Buffers:
    n, t, units = shapes.y
    steps: Spec = (shapes.y, FLOAT)
    kept: dict[str, Spec] = {"gates": ((n, t, 4 * units), FLOAT), "cells": steps, "tanh": steps}
    forward, backward = recurrent_buffers(4, shapes, units)
    if not shapes.training:
        return Buffers(forward={**kept, **forward})
    return Buffers(saved=kept, forward=forward, backward={**backward, "dc": ((n, units), FLOAT)})


def recurrent_buffers(gates: int, shapes: Shapes, units: int) -> tuple[dict[str, Spec], dict[str, Spec]]:
    """The scratch of forward and backward for a layer with so many gates."""
    (n, t, features), wide = shapes.x[0], gates * units
    m = n * t
    back = [room(wide, each, m, transposed=True) for each in (features, units)]
    back += [room(m, features, wide)] if shapes.wanted else []
    return {
        "room": room_spec(room(m, wide, features)),
        "laid": ((laid_out(wide, units),), FLOAT),
    }, {
        "room": room_spec(*back),
        "laid": ((laid_out(units, wide),), FLOAT),
        "dgates": ((n, t, wide), FLOAT),
        "past": (shapes.y, FLOAT),
        "dh": ((n, units), FLOAT),
    }


def of_inputs(call: Call, gates: Array) -> Command:
    """The inputs' part in the gates of all steps."""
    return multiplied(rows(call.x[0]), call.w["weight_ih"].T, rows(gates), call.scratch["room"], call.w["bias_ih"])


def of_weights(call: Call, dgates: Array, dinner: Array) -> list[Command]:
    """The gradients of all weights and of the inputs, from the gradients of the gates: for the inputs and for the last
    output."""
    x, dx, dw, place = rows(call.x[0]), call.dx[0], call.dw, call.scratch["room"]
    outer, inner, past = rows(dgates), rows(dinner), rows(call.scratch["past"])
    runs = [
        multiplied(outer.T, x, dw["weight_ih"], place),
        multiplied(inner.T, past, dw["weight_hh"], place),
        column_sums.command(x=outer, sums=dw["bias_ih"], rows=len(outer), columns=outer.shape[1]),
        column_sums.command(x=inner, sums=dw["bias_hh"], rows=len(inner), columns=inner.shape[1]),
    ]
    if dx is not None:
        runs.append(multiplied(outer, call.w["weight_ih"], rows(dx), place))
    return runs


def of_states(call: Call, *gradients: Array) -> list[Command]:
    """The gradients of the initial states, where they are needed."""
    pairs = [(source, target) for source, target in zip(gradients, call.dx[1:], strict=False) if target is not None]
    return [copy_all.command(source=source, target=target, size=target.size) for source, target in pairs]


def of_steps(call: Call) -> dict[str, Any]:
    """Arguments that the kernels of all recurrent layers have in common."""
    n, t, units = call.y.shape
    first = dict(zip(("first", "first_cell"), call.x[1:], strict=False))
    return {"weight": call.w["weight_hh"], "laid": call.scratch["laid"], "n": n, "t": t, "units": units, **first}


def forward(call: Call) -> Run:
    gates, cells, tanhs, (y, last, cell) = call.buffer("gates"), call.buffer("cells"), call.buffer("tanh"), call.ys
    through = remember.command(
        gates=gates, cells=cells, tanhs=tanhs, y=y, last=last, cell=cell, bias=call.w["bias_hh"], **of_steps(call)
    )
    return together([of_inputs(call, gates), through])


def backward(call: Call) -> Run:
    saved, scratch, (dy, dlast, dcell) = call.saved, call.scratch, call.dys
    dgates, dh, dc = scratch["dgates"], scratch["dh"], scratch["dc"]
    through = remember_back.command(
        gates=saved["gates"], cells=saved["cells"], tanhs=saved["tanh"], y=call.y, dy=dy, dlast=dlast, dcell=dcell,
        dgates=dgates, past=scratch["past"], dh=dh, dc=dc, **of_steps(call),
    )  # fmt: skip
    return together([through, *of_states(call, dh, dc), *of_weights(call, dgates, dgates)])
