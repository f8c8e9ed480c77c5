"""Long short-term memory over a sequence (Hochreiter and Schmidhuber, Neural Computation 9(8), 1997)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpibow.graph.graph import FLOAT, Array, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec
from mpibow.ops.recurrent import initial_of, layered, recurrent_weights, sequence

__all__ = ["Lstm", "lstm"]


@dataclass(frozen=True)
class Lstm(Op):
    """y (n, t, units), and the last h and c (n, units), of x0 (n, t, features); h and c start as x1 and x2 where
    `state`, else at 0.

    With i, f, g and o a quarter each of weight_ih x[t] + bias_ih + weight_hh h + bias_hh, s the sigmoid:
    c <- s(f) c + s(i) tanh(g), h <- s(o) tanh(c), y[t] = h.
    """

    units: int
    initial: Initialiser
    state: bool = False
    kind = "lstm"
    reads = frozenset("xwy")

    @property
    def differentiable(self) -> tuple[int, ...]:
        return (0, 1, 2) if self.state else (0,)

    def infer(self, *shapes: Shape) -> Shape:
        return sequence(shapes, self.units, 2 * self.state)

    def outputs(self, *shapes: Shape) -> tuple[Shape, ...]:
        y = self.infer(*shapes)
        return y, (y[0], y[2]), (y[0], y[2])

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        return recurrent_weights(4, self.units, shapes[0][2], self.initial)


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
    op = Lstm(units, initial_of(units, initial), state is not None)
    y, (h, c) = layered(op, x, units, state or (), layers, bidirectional, dropout, name)
    return y, (h, c)


# The reference kernels. Gates are (n, t, 4 units): products that need no order of steps run once for all steps.


def buffers(op: Lstm, shapes: Shapes) -> Buffers:
    n, t, units = shapes.y
    gates, steps, one = ((n, t, 4 * units), FLOAT), (shapes.y, FLOAT), ((n, units), FLOAT)
    kept: dict[str, Spec] = {"gates": gates, "cells": steps, "tanh": steps}
    forward: dict[str, Spec] = {"part": ((n, 4 * units), FLOAT), "one": one}
    if not shapes.training:
        return Buffers(forward={**kept, **forward})
    backward: dict[str, Spec] = {"dgates": gates, "past": steps, "dh": one, "dc": one, "one": one}
    return Buffers(saved=kept, forward=forward, backward=backward)


def sigmoid(x: Array) -> None:
    """x <- 1 / (1 + exp(-x)), by tanh, which does not overflow."""
    half = x.dtype.type(0.5)
    x *= half
    np.tanh(x, out=x)
    x *= half
    x += half


def by_gate(gates: Array, units: int) -> list[list[Array]]:
    """Views (n, units) of gates (n, t, k units), by step and gate."""
    return [
        [gates[:, step, start : start + units] for start in range(0, gates.shape[2], units)]
        for step in range(gates.shape[1])
    ]


def forward(call: Call) -> Run:
    (x, *begin), (y, last, cell), units = call.x, call.ys, call.op.units
    h, before = begin or (None, None)
    gates, cells, tanhs = call.buffer("gates"), call.buffer("cells"), call.buffer("tanh")
    part, one = call.scratch["part"], call.scratch["one"]
    w_x, w_h = call.w["weight_ih"].T, call.w["weight_hh"].T
    b_x, b_h, steps = call.w["bias_ih"], call.w["bias_hh"], by_gate(gates, units)
    flat_x, flat_gates = x.reshape(-1, x.shape[2]), gates.reshape(-1, gates.shape[2])

    def run() -> None:
        nonlocal flat_gates
        np.matmul(flat_x, w_x, out=flat_gates)
        flat_gates += b_x
        flat_gates += b_h
        for t, (i, f, g, o) in enumerate(steps):
            if (said := y[:, t - 1] if t else h) is not None:
                np.matmul(said, w_h, out=part)
                gates[:, t] += part
            sigmoid(i)
            sigmoid(f)
            np.tanh(g, out=g)
            sigmoid(o)
            c = cells[:, t]
            np.multiply(i, g, out=c)
            if (past := cells[:, t - 1] if t else before) is not None:
                np.multiply(f, past, out=one)
                c += one
            np.tanh(c, out=tanhs[:, t])
            np.multiply(o, tanhs[:, t], out=y[:, t])
        np.copyto(last, y[:, -1])
        np.copyto(cell, cells[:, -1])

    return run


def backward(call: Call) -> Run:
    (x, *begin), y, units, (dy, dlast, dcell), (dx, *dbegin) = call.x, call.y, call.op.units, call.dys, call.dx
    h, before = begin or (None, None)
    gates, cells, tanhs = call.saved["gates"], call.saved["cells"], call.saved["tanh"]
    dgates, past, dh, dc, one = (call.scratch[key] for key in ("dgates", "past", "dh", "dc", "one"))
    w_x, w_h, dw = call.w["weight_ih"], call.w["weight_hh"], call.dw
    steps, dsteps = by_gate(gates, units), by_gate(dgates, units)
    flat_d, flat_x, flat_past = (array.reshape(-1, array.shape[2]) for array in (dgates, x, past))
    flat_dx, unit = None if dx is None else dx.reshape(flat_x.shape), dy.dtype.type(1)

    def through(gate: Array, d: Array) -> None:
        """d <- d s (1 - s), s being the gate."""
        d *= gate
        np.subtract(unit, gate, out=one)
        d *= one

    def run() -> None:
        nonlocal dc, dh, one
        np.copyto(dh, dlast)
        np.copyto(dc, dcell)
        for t in reversed(range(len(steps))):
            (i, f, g, o), (di, df, dg, do) = steps[t], dsteps[t]
            dh += dy[:, t]
            np.multiply(dh, tanhs[:, t], out=do)
            np.multiply(tanhs[:, t], tanhs[:, t], out=one)
            np.subtract(unit, one, out=one)
            one *= o
            one *= dh
            dc += one
            np.multiply(dc, g, out=di)
            if (c := cells[:, t - 1] if t else before) is not None:
                np.multiply(dc, c, out=df)
            else:
                df.fill(0)
            np.multiply(g, g, out=dg)
            np.subtract(unit, dg, out=dg)
            dg *= i
            dg *= dc
            for gate, d in ((i, di), (f, df), (o, do)):
                through(gate, d)
            dc *= f
            np.matmul(dgates[:, t], w_h, out=dh)
        for target, source in zip(dbegin, (dh, dc), strict=False):
            if target is not None:
                np.copyto(target, source)
        if h is None:
            past[:, 0].fill(0)
        else:
            np.copyto(past[:, 0], h)
        np.copyto(past[:, 1:], y[:, :-1])
        np.matmul(flat_d.T, flat_x, out=dw["weight_ih"])
        np.matmul(flat_d.T, flat_past, out=dw["weight_hh"])
        np.sum(flat_d, axis=0, out=dw["bias_ih"])
        np.copyto(dw["bias_hh"], dw["bias_ih"])
        if flat_dx is not None:
            np.matmul(flat_d, w_x, out=flat_dx)

    return run


KERNELS: KernelTable = {
    Lstm: Kernel(forward, backward, buffers),
}
