"""Gated recurrent units, like the LSTM: the inputs of all steps at once, then a product and a pass for each step."""

from __future__ import annotations

import numpy as np

from mpibow.graph.graph import FLOAT
from mpibow.graph.kernel import Buffers, Call, Run, Shapes, Spec
from mpibow.kernels.compiled import lstm, panels, products
from mpibow.kernels.compiled.command import command, floats, native_with, together, words
from mpibow.kernels.compiled.lstm import before, of_inputs, of_states, of_weights, opened, outset, recurrent_buffers
from mpibow.kernels.compiled.numeric import inlined, tanh
from mpibow.kernels.compiled.products import by_laid_out, copied, lay_out
from mpibow.ops import Gru

_f = np.float32
native = native_with(lstm, panels, products)


@native
def mix(arguments: int, _: int, count: int, __: int) -> int:
    """(gates, inner, y, last, w_hh, b_hh, laid out, part, n, t, units, first): gates (n, t, 3 units) contain the
    inputs' part at first; inner (n, t, units) receives the last output's part in the new one. part (n, 3 units) is
    scratch. The first output is 0 where it is no array."""
    a = words(arguments, count)
    gates, inner, y, last, weight, bias, laid, part = a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
    n, t, units, first = a[8], a[9], a[10], a[11]
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
    return 0


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
def mix_back(arguments: int, _: int, count: int, __: int) -> int:
    """(gates, inner, y, dy, dlast, w_hh, dgates, dinner, past, dh, laid out, n, t, units, first): gradients of the
    gates, for the inputs and for the last output; and past (n, t, units), y of the step before. dh (n, units) becomes
    the gradient of the first output, if that is an array."""
    a = words(arguments, count)
    gates, inner, y, dy, dlast, weight, dgates, dinner = a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
    past, dh, laid, n, t, units, first = a[8], a[9], a[10], a[11], a[12], a[13], a[14]
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
    return 0


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
    gates, inner, w, scratch = call.buffer("gates"), call.buffer("inner"), call.w, call.scratch
    through = command(
        mix, gates, inner, *call.ys, w["weight_hh"], w["bias_hh"], scratch["laid"], scratch["part"], *call.y.shape,
        *(call.x[1:] or (0,)),
    )  # fmt: skip
    return together([of_inputs(call, gates), through])


def backward(call: Call) -> Run:
    saved, scratch = call.saved, call.scratch
    dgates, dinner = scratch["dgates"], scratch["dinner"]
    through = command(
        mix_back, saved["gates"], saved["inner"], call.y, *call.dys, call.w["weight_hh"], dgates, dinner,
        scratch["past"], scratch["dh"], scratch["laid"], *call.y.shape, *(call.x[1:] or (0,)),
    )  # fmt: skip
    return together([through, *of_states(call, scratch["dh"]), *of_weights(call, dgates, dinner)])
