"""Gated recurrent units, like the LSTM: the inputs of all steps at once, then a product and a pass for each step."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled.arguments import Address
from mpibow.kernels.compiled.command import floats, native, together
from mpibow.kernels.compiled.lstm import (
    before,
    of_inputs,
    of_states,
    of_steps,
    of_weights,
    opened,
    outset,
    recurrent_buffers,
)
from mpibow.kernels.compiled.numeric import inlined, tanh
from mpibow.kernels.compiled.products import by_laid_out, copied, lay_out
from mpibow.ops import Gru

_f = np.float32


@native
def mix(
    gates: Address,
    inner: Address,
    y: Address,
    last: Address,
    weight: Address,
    bias: Address,
    laid: Address,
    part: Address,
    n: int,
    t: int,
    units: int,
    first: Address = None,
) -> None:
    """y = the outputs of all steps. gates (n, t, 3 units) contain the
    inputs' part at first; inner (n, t, units) receives the last output's part in the new one. part (n, 3 units) is
    scratch. The first output is 0 where it is no array."""
    one, row = 4 * units, 12 * units
    lay_out(weight, laid, 3 * units, units, 4, one)
    for step in range(t):
        if step:
            by_laid_out(y + (step - 1) * one, laid, part, n, 3 * units, units, t * one, row, bias, 0)
        elif first:
            by_laid_out(first, laid, part, n, 3 * units, units, one, row, bias, 0)
        for i in range(n):
            gate, at = gates + (i * t + step) * row, (i * t + step) * one
            said = part + i * row if step or first else bias
            opened(gate, said, units)
            opened(gate + one, said + one, units)
            copied(said + 2 * one, inner + at, units)
            _mix(gate, inner + at, y + at, before(y + at - one, first, i * one, step), units)
    for i in range(n):
        copied(y + ((i + 1) * t - 1) * one, last + i * one, units)


@inlined
def _mix(gate: int, inner: int, y: int, before: int, units: int) -> None:
    """m <- tanh(m + r inner), y <- m + z (y before - m); before is 0 for none."""
    r, z, m = floats(gate, units), floats(gate + 4 * units, units), floats(gate + 8 * units, units)
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
def mix_back(
    gates: Address,
    inner: Address,
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
    first: Address = None,
) -> None:
    """The gradients of the
    gates, for the inputs and for the last output; and past (n, t, units), y of the step before. dh (n, units) becomes
    the gradient of the first output, if that is an array."""
    one, row = 4 * units, 12 * units
    lay_out(weight, laid, units, 3 * units, one, 4)
    copied(dlast, dh, n * units)
    for step in range(t - 1, -1, -1):
        for i in range(n):
            at = (i * t + step) * one
            outset(past + at, before(y + at - one, first, i * one, step), units)
            d = dh + i * one
            _mix_back(gates + 3 * at, dgates + 3 * at, dinner + 3 * at, inner + at, past + at, dy + at, d, units)
        if step or first:
            by_laid_out(dinner + step * row, laid, dh, n, units, 3 * units, t * row, one, dh, one)


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


def buffers(op: Gru, shapes: Shapes) -> Buffers:
    n, t, units = shapes.y
    gates: Spec = ((n, t, 3 * units), FLOAT)
    kept: dict[str, Spec] = {"gates": gates, "inner": (shapes.y, FLOAT)}
    forward, backward = recurrent_buffers(3, shapes, units)
    forward["part"] = ((n, 3 * units), FLOAT)
    if not shapes.training:
        return Buffers(forward={**kept, **forward})
    return Buffers(saved=kept, forward=forward, backward={**backward, "dinner": gates})


def forward(call: Call) -> Run:
    gates, inner, (y, last), part = call.buffer("gates"), call.buffer("inner"), call.ys, call.scratch["part"]
    bias = call.w["bias_hh"]
    through = mix.command(gates=gates, inner=inner, y=y, last=last, bias=bias, part=part, **of_steps(call))
    return together([of_inputs(call, gates), through])


def backward(call: Call) -> Run:
    saved, scratch, (dy, dlast) = call.saved, call.scratch, call.dys
    dgates, dinner, dh = scratch["dgates"], scratch["dinner"], scratch["dh"]
    through = mix_back.command(
        gates=saved["gates"], inner=saved["inner"], y=call.y, dy=dy, dlast=dlast, dgates=dgates, dinner=dinner,
        past=scratch["past"], dh=dh, **of_steps(call),
    )  # fmt: skip
    return together([through, *of_states(call, dh), *of_weights(call, dgates, dinner)])
