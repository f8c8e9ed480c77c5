"""The steps of an LSTM and of a GRU, forward and backward: a product with the last output, and a pass over the gates.

Arrays over steps are (n, t, units), those of gates (n, t, gates * units): i, f, g and o of an LSTM, r, z and m of a GRU
that has the last output's part of m in `inner`.
"""

from typing import Literal

import numpy as np

from .native import Address, Floats, floats, native
from .numeric import inlined, sigmoid, tanh
from .products import GROUP, by_panels, copied, lay_out
from .vectors import LINE

_f = np.float32
Gates = Literal[3, 4]


@inlined
def _open(address: int, bias: int, units: int) -> None:
    """A gate <- its sigmoid, with a bias."""
    x = floats(address, units)
    b = floats(bias, units)
    for j in range(units):
        x[j] = sigmoid(x[j] + b[j])


@inlined
def _three(gate: int, units: int) -> tuple[Floats, Floats, Floats]:
    """The first three gates, one behind the other."""
    return floats(gate, units), floats(gate + 4 * units, units), floats(gate + 8 * units, units)


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
        here = gates + step * row
        between = t * row
        to, to_row, more, more_row = (here, between, here, between) if number == 4 else (part, row, bias, 0)
        before, before_row = (y + (step - 1) * one, t * one) if step else (first, one)
        if before:
            by_panels(
                before,
                laid,
                to,
                n,
                wide,
                units,
                before_row,
                4,
                GROUP * before_row,
                to_row,
                more,
                more_row,
                0,
                0,
                0,
                LINE,
                False,
            )
        for i in range(n):
            gate = gates + (i * t + step) * row
            at = (i * t + step) * one
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
    i, f, g = _three(gate, units)
    c = floats(cell, units)
    b = floats(bias + 2 * one, units)
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
    o = floats(gate, units)
    c = floats(cell, units)
    h = floats(tanhs, units)
    out = floats(y, units)
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
    r, z, m = _three(gate, units)
    own = floats(inner, units)
    out = floats(y, units)
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
    one = 4 * units
    row = 4 * number * units
    lay_out(weight, laid, units, number * units, one, 4)
    copied(dlast, dh, n * units)
    if number == 4:
        copied(dcell, dc, n * units)
    for step in range(t - 1, -1, -1):
        for i in range(n):
            at = (i * t + step) * one
            offset = i * one
            gate = gates + number * at
            dgate = dgates + number * at
            h = dh + offset
            c = dc + offset
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
            left = dinner + step * row
            apart = t * row
            by_panels(
                left,
                laid,
                dh,
                n,
                units,
                number * units,
                apart,
                4,
                GROUP * apart,
                one,
                more,
                more_row,
                0,
                0,
                0,
                LINE,
                False,
            )


@inlined
def _let_out_back(gate: int, dgate: int, tanhs: int, dy: int, dh: int, dc: int, units: int) -> None:
    """The gradients of o and c from the gradients of y: the step's own, and those from later steps."""
    o = floats(gate, units)
    do = floats(dgate, units)
    h = floats(tanhs, units)
    dc_ = floats(dc, units)
    here = floats(dy, units)
    behind = floats(dh, units)
    for j in range(units):
        do[j] = here[j] + behind[j]
    for j in range(units):
        dc_[j] += do[j] * (o[j] * (_f(1) - h[j] * h[j]))
    for j in range(units):
        do[j] *= h[j] * (o[j] * (_f(1) - o[j]))


@inlined
def _remember_back(gate: int, dgate: int, dc: int, before: int, units: int) -> None:
    """The gradients of i, f, g and the c of the step before, from the gradient of c."""
    (i, f, g) = _three(gate, units)
    (di, df, dg) = _three(dgate, units)
    d = floats(dc, units)
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
    r, z, m = _three(gate, units)
    dr, dz, dm = _three(dgate, units)
    own = floats(inner, units)
    before = floats(past, units)
    here = floats(dy, units)
    d = floats(dh, units)
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
