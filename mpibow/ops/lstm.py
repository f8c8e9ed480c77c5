"""Long short-term memory over a sequence (Hochreiter and Schmidhuber, Neural Computation 9(8), 1997)."""

import numpy as np

from mpibow.graph import FLOAT, Array, Buffers, Call, Initialiser, Kernel, Run, Shapes, Tensor, binds

from .recurrent import Recurrent, by_gate, outputs_before, recurrent, sigmoid, through_inputs, through_products

__all__ = ["Lstm", "lstm"]


class Lstm(Recurrent):
    """y (n, t, units), and the last h and c (n, units), of x0 (n, t, features); h and c start as x1 and x2 where
    `state`, else at 0.

    With i, f, g and o a quarter each of weight_ih x[t] + bias_ih + weight_hh h + bias_hh, s the sigmoid:
    c <- s(f) c + s(i) tanh(g), h <- s(o) tanh(c), y[t] = h.
    """

    kind = "lstm"
    gates = 4
    states = 2


def lstm(
    x: Tensor,
    units: int,
    *,
    layers: int = 1,
    state: tuple[Tensor, Tensor] | None = None,
    bidirectional: bool = False,
    dropout: float = 0.0,
    initial: Initialiser | None = None,
    name: str | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """x (n, t, features) -> y (n, t, directions * units), and the last (h, c): torch.nn.LSTM's, with batch_first.

    h and c are (layers * directions, n, units), like the initial `state`, by default 0. `dropout` is applied
    between layers. Weights are PyTorch's, NAME.weight_ih_l0 ..., and start as `initial`, by default uniform within
    1 / sqrt(units).
    """
    y, (h, c) = recurrent(Lstm, x, units, state or (), layers, bidirectional, dropout, initial, name)
    return y, (h, c)


# The reference kernels.


def buffers(op: Lstm, shapes: Shapes) -> Buffers:
    n, t, units = shapes.y
    gates = ((n, t, 4 * units), FLOAT)
    steps = (shapes.y, FLOAT)
    one = ((n, units), FLOAT)
    return Buffers(
        saved={"gates": gates, "cells": steps, "tanh": steps},
        forward={"part": ((n, 4 * units), FLOAT), "one": one},
        backward={"dgates": gates, "past": steps, "dh": one, "dc": one, "one": one},
    )


@binds
def forward(
    x: Array,
    y: Array,
    y1: Array,
    y2: Array,
    gates: Array,
    cells: Array,
    tanh: Array,
    part: Array,
    one: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array,
    bias_hh: Array,
    units: int,
    x1: Array | None = None,
    x2: Array | None = None,
) -> Run:
    enter = through_inputs(x, gates, weight_ih, bias_ih, bias_hh)
    steps = by_gate(gates, units)
    w_h = weight_hh.T

    def run() -> None:
        enter()
        for t, (i, f, g, o) in enumerate(steps):
            if (said := y[:, t - 1] if t else x1) is not None:
                np.matmul(said, w_h, out=part)
                gates[:, t] += part
            sigmoid(i)
            sigmoid(f)
            np.tanh(g, out=g)
            sigmoid(o)
            c = cells[:, t]
            np.multiply(i, g, out=c)
            if (past := cells[:, t - 1] if t else x2) is not None:
                np.multiply(f, past, out=one)
                c += one
            np.tanh(c, out=tanh[:, t])
            np.multiply(o, tanh[:, t], out=y[:, t])
        np.copyto(y1, y[:, -1])
        np.copyto(y2, cells[:, -1])

    return run


@binds
def backward(
    call: Call,
    dy: Array,
    dy1: Array,
    dy2: Array,
    gates: Array,
    cells: Array,
    tanh: Array,
    weight_hh: Array,
    dgates: Array,
    past: Array,
    dh: Array,
    dc: Array,
    one: Array,
    units: int,
    x2: Array | None = None,
) -> Run:
    steps = by_gate(gates, units)
    dsteps = by_gate(dgates, units)
    dbegin = call.dx[1:]
    shift = outputs_before(call, past)
    finish = through_products(call, past, dgates, dgates)

    def through(gate: Array, d: Array) -> None:
        """d <- d s (1 - s), s being the gate."""
        d *= gate
        np.subtract(1, gate, out=one)
        d *= one

    def run() -> None:
        nonlocal dc, dh, one
        np.copyto(dh, dy1)
        np.copyto(dc, dy2)
        for t in reversed(range(len(steps))):
            i, f, g, o = steps[t]
            di, df, dg, do = dsteps[t]
            dh += dy[:, t]
            np.multiply(dh, tanh[:, t], out=do)
            np.multiply(tanh[:, t], tanh[:, t], out=one)
            np.subtract(1, one, out=one)
            one *= o
            one *= dh
            dc += one
            np.multiply(dc, g, out=di)
            if (c := cells[:, t - 1] if t else x2) is not None:
                np.multiply(dc, c, out=df)
            else:
                df.fill(0)
            np.multiply(g, g, out=dg)
            np.subtract(1, dg, out=dg)
            dg *= i
            dg *= dc
            for gate, d in ((i, di), (f, df), (o, do)):
                through(gate, d)
            dc *= f
            np.matmul(dgates[:, t], weight_hh, out=dh)
        for target, source in zip(dbegin, (dh, dc), strict=False):
            if target is not None:
                np.copyto(target, source)
        shift()
        finish()

    return run


KERNELS = {Lstm: Kernel(forward, backward, buffers)}
