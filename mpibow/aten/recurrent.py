"""Recurrent layers and cells, as ATen calls them."""

from collections.abc import Sequence

import numpy as np

from mpibow import ops
from mpibow.graph import Tensor
from mpibow.ops.initialisers import ZERO
from mpibow.ops.recurrent import KEYS, layered

from .layers import held, linear
from .site import Function, Result, Site, Value, need, number


def recurrent(
    site: Site,
    input: Value,
    hx: Value | list[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Result:
    """All layers and directions, each an operator with its four weights; their last states are stacked."""
    each = 4 if has_biases else 2  # arrays of a layer and direction
    need(len(params) == each * num_layers * (1 + bidirectional), "a recurrent layer with projections (proj_size)")
    kind = ops.Lstm if site.call.operator == "lstm" else ops.Gru
    states = hx if isinstance(hx, list) else [hx]
    given = [] if all(number(state) == 0 for state in states) else site.tensors(states)

    def add(n: int, *inputs: Tensor) -> Sequence[Tensor]:
        weights = dict(zip(KEYS, params[each * n : each * (n + 1)], strict=False))
        rows, units = weights["weight_hh"].shape
        weights |= {key: np.zeros(rows) for key in KEYS[each:]}
        return held(site, kind(units, ZERO, bool(given)), inputs, weights)

    def turned(x: Tensor) -> Tensor:
        return x if batch_first else ops.transpose(x, 0, 1)

    y, last = layered(add, turned(site.floats(input)), given, num_layers, bidirectional, dropout if train else 0.0)
    return [turned(y), *last]


def gates(
    site: Site, x: Value, h: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None, b_hh: Value | None = None
) -> list[list[Tensor]]:
    """The gates of a recurrent cell, by its input and by its last output."""
    sums = linear(site, x, w_ih, b_ih), linear(site, h, w_hh, b_hh)
    return [[*ops.split(each, h.shape[1], axis=1)] for each in sums]


def lstm_cell(site: Site, input: Value, hx: list[Value], **weights: Value) -> Result:
    i, f, g, o = (x + h for x, h in zip(*gates(site, input, hx[0], **weights), strict=True))
    c = ops.sigmoid(f) * site.floats(hx[1]) + ops.sigmoid(i) * ops.tanh(g)
    return [ops.sigmoid(o) * ops.tanh(c), c]


def gru_cell(site: Site, input: Value, hx: Value, **weights: Value) -> Tensor:
    (xr, xz, xn), (hr, hz, hn) = gates(site, input, hx, **weights)
    update = ops.sigmoid(xz + hz)
    h = site.floats(hx)
    new = ops.tanh(xn + ops.sigmoid(xr + hr) * hn)
    return new + update * (h - new)


OPERATORS: dict[str, Function] = {"gru": recurrent, "gru_cell": gru_cell, "lstm": recurrent, "lstm_cell": lstm_cell}
