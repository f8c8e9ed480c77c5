"""Gated recurrent units over a sequence (Cho et al., arXiv:1406.1078), in PyTorch's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from mpibow.graph.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec
from mpibow.ops.initialisers import Uniform
from mpibow.ops.lstm import by_gate, recurrent_weights, sequence, sigmoid

__all__ = ["Gru", "gru"]


@dataclass(frozen=True)
class Gru(Op):
    """y (n, t, units), and the last h (n, units), of x (n, t, features); h starts at 0.

    With a third each of a = weight_ih x[t] + bias_ih and b = weight_hh h + bias_hh, s the sigmoid:
    r = s(a0 + b0), z = s(a1 + b1), m = tanh(a2 + r b2), h <- (1 - z) m + z h, y[t] = h.
    """

    units: int
    initial: Initialiser
    kind: ClassVar[str] = "gru"
    reads: ClassVar[frozenset[str]] = frozenset("xwy")

    def infer(self, *shapes: Shape) -> Shape:
        return sequence(shapes[0], self.units)

    def outputs(self, *shapes: Shape) -> tuple[Shape, ...]:
        y = self.infer(*shapes)
        return y, (y[0], y[2])

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        return recurrent_weights(3, self.units, shapes[0][2], self.initial)


def gru(x: Tensor, units: int, *, initial: Initialiser | None = None, name: str | None = None) -> tuple[Tensor, Tensor]:
    """x (n, t, features) -> y (n, t, units), and the last h (n, units): PyTorch's, with batch_first.

    All weights start as `initial`, evenly within 1 / sqrt(units) unless given.
    """
    bound = 1 / sqrt(max(units, 1))
    y, h = x.graph.add_all(Gru(units, initial or Uniform(-bound, bound)), x, name=name)
    return y, h


# The reference kernels. Gates are (n, t, 3 units): what x has a say in is one product for all steps.


def buffers(op: Gru, shapes: Shapes) -> Buffers:
    n, t, units = shapes.y
    gates, steps, one = ((n, t, 3 * units), FLOAT), (shapes.y, FLOAT), ((n, units), FLOAT)
    kept: dict[str, Spec] = {"gates": gates, "inner": steps}
    forward: dict[str, Spec] = {"part": ((n, 3 * units), FLOAT)}
    if not shapes.training:
        return Buffers(forward={**kept, **forward})
    backward: dict[str, Spec] = {"da": gates, "db": gates, "past": steps, "dh": one, "one": one}
    return Buffers(saved=kept, forward=forward, backward=backward)


def forward(call: Call) -> Run:
    x, (y, last), units = call.x[0], call.ys, call.op.units
    gates, inner, part = call.buffer("gates"), call.buffer("inner"), call.scratch["part"]
    w_x, w_h, b_x, b_h = call.w["weight_ih"].T, call.w["weight_hh"].T, call.w["bias_ih"], call.w["bias_hh"]
    flat_x, flat_gates, steps = x.reshape(-1, x.shape[2]), gates.reshape(-1, gates.shape[2]), by_gate(gates, units)
    both, own = part[:, : 2 * units], part[:, 2 * units :]

    def run() -> None:
        np.matmul(flat_x, w_x, out=flat_gates)
        np.add(flat_gates, b_x, out=flat_gates)
        for t, (r, z, m) in enumerate(steps):
            if t:
                np.matmul(y[:, t - 1], w_h, out=part)
                np.add(part, b_h, out=part)
            else:
                np.copyto(part, b_h)
            np.add(gates[:, t, : 2 * units], both, out=gates[:, t, : 2 * units])
            np.copyto(inner[:, t], own)
            sigmoid(r)
            sigmoid(z)
            np.multiply(own, r, out=own)
            np.add(m, own, out=m)
            np.tanh(m, out=m)
            h = y[:, t]
            if t:
                np.subtract(y[:, t - 1], m, out=h)  # m + z (h - m)
            else:
                np.negative(m, out=h)
            np.multiply(h, z, out=h)
            np.add(h, m, out=h)
        np.copyto(last, y[:, -1])

    return run


def backward(call: Call) -> Run:
    x, y, units, (dy, dlast), dx = call.x[0], call.y, call.op.units, call.dys, call.dx[0]
    gates, inner = call.saved["gates"], call.saved["inner"]
    da, db, past, dh, one = (call.scratch[key] for key in ("da", "db", "past", "dh", "one"))
    w_x, w_h, dw = call.w["weight_ih"], call.w["weight_hh"], call.dw
    steps, a_steps = by_gate(gates, units), by_gate(da, units)
    flat_a, flat_b, flat_x, flat_past = (array.reshape(-1, array.shape[2]) for array in (da, db, x, past))
    flat_dx, unit = None if dx is None else dx.reshape(flat_x.shape), dy.dtype.type(1)

    def run() -> None:
        past[:, 0].fill(0)
        np.copyto(past[:, 1:], y[:, :-1])
        np.copyto(dh, dlast)
        for t in reversed(range(len(steps))):
            (r, z, m), (dr, dz, dm) = steps[t], a_steps[t]
            np.add(dh, dy[:, t], out=dh)
            np.subtract(past[:, t], m, out=dz)
            np.multiply(dz, dh, out=dz)
            np.multiply(dz, z, out=dz)
            np.subtract(unit, z, out=one)
            np.multiply(dz, one, out=dz)
            np.multiply(one, dh, out=one)
            np.multiply(m, m, out=dm)
            np.subtract(unit, dm, out=dm)
            np.multiply(dm, one, out=dm)
            np.subtract(unit, r, out=dr)
            np.multiply(dr, r, out=dr)
            np.multiply(dr, inner[:, t], out=dr)
            np.multiply(dr, dm, out=dr)
            np.copyto(db[:, t], da[:, t])
            np.multiply(dm, r, out=db[:, t, 2 * units :])
            np.multiply(dh, z, out=one)
            np.matmul(db[:, t], w_h, out=dh)
            np.add(dh, one, out=dh)
        np.matmul(flat_a.T, flat_x, out=dw["weight_ih"])
        np.matmul(flat_b.T, flat_past, out=dw["weight_hh"])
        np.sum(flat_a, axis=0, out=dw["bias_ih"])
        np.sum(flat_b, axis=0, out=dw["bias_hh"])
        if flat_dx is not None:
            np.matmul(flat_a, w_x, out=flat_dx)

    return run


KERNELS: KernelTable = {
    Gru: Kernel(forward, backward, buffers),
}
