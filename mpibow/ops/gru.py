"""Gated recurrent units over a sequence (Cho et al., arXiv:1406.1078), in PyTorch's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpibow.graph.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, KernelTable, Run, Shapes, Spec
from mpibow.ops.lstm import by_gate, sigmoid
from mpibow.ops.recurrent import initial_of, layered, recurrent_weights, sequence

__all__ = ["Gru", "gru"]


@dataclass(frozen=True)
class Gru(Op):
    """y (n, t, units), and the last h (n, units), of x0 (n, t, features); h starts as x1 where
    `state`, else at 0.

    With a third each of a = weight_ih x[t] + bias_ih and b = weight_hh h + bias_hh, s the sigmoid:
    r = s(a0 + b0), z = s(a1 + b1), m = tanh(a2 + r b2), h <- (1 - z) m + z h, y[t] = h.
    """

    units: int
    initial: Initialiser
    state: bool = False
    kind = "gru"
    reads = frozenset("xwy")

    @property
    def differentiable(self) -> tuple[int, ...]:
        return (0, 1) if self.state else (0,)

    def infer(self, *shapes: Shape) -> Shape:
        return sequence(shapes, self.units, 1 * self.state)

    def outputs(self, *shapes: Shape) -> tuple[Shape, ...]:
        y = self.infer(*shapes)
        return y, (y[0], y[2])

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        return recurrent_weights(3, self.units, shapes[0][2], self.initial)


def gru(
    x: Tensor,
    units: int,
    *,
    layers: int = 1,
    state: Tensor | None = None,
    bidirectional: bool = False,
    dropout: float = 0.0,
    initial: Initialiser | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """x (n, t, features) -> y (n, t, directions * units), and the last h: torch.nn.GRU's, with batch_first.

    h is (layers * directions, n, units), like the initial `state`, by default 0. `dropout` is applied between layers.
    Weights are PyTorch's, NAME.weight_ih_l0 ..., and start as `initial`, by default uniform within 1 / sqrt(units).
    """
    op, states = Gru(units, initial_of(units, initial), state is not None), () if state is None else (state,)
    y, (h,) = layered(op, x, units, states, layers, bidirectional, dropout, name)
    return y, h


# The reference kernels. Gates are (n, t, 3 units): the products with x are one for all steps.


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
    (x, *begin), (y, last), units = call.x, call.ys, call.op.units
    first = begin[0] if begin else None
    gates, inner, part = call.buffer("gates"), call.buffer("inner"), call.scratch["part"]
    w_x, w_h, b_x, b_h = call.w["weight_ih"].T, call.w["weight_hh"].T, call.w["bias_ih"], call.w["bias_hh"]
    flat_x, flat_gates, steps = x.reshape(-1, x.shape[2]), gates.reshape(-1, gates.shape[2]), by_gate(gates, units)
    both, own = part[:, : 2 * units], part[:, 2 * units :]

    def run() -> None:
        nonlocal flat_gates, own, part
        np.matmul(flat_x, w_x, out=flat_gates)
        flat_gates += b_x
        for t, (r, z, m) in enumerate(steps):
            before = y[:, t - 1] if t else first
            if before is not None:
                np.matmul(before, w_h, out=part)
                part += b_h
            else:
                np.copyto(part, b_h)
            gates[:, t, : 2 * units] += both
            np.copyto(inner[:, t], own)
            sigmoid(r)
            sigmoid(z)
            own *= r
            m += own
            np.tanh(m, out=m)
            h = y[:, t]
            if before is not None:
                np.subtract(before, m, out=h)  # m + z (h - m)
            else:
                np.negative(m, out=h)
            h *= z
            h += m
        np.copyto(last, y[:, -1])

    return run


def backward(call: Call) -> Run:
    (x, *begin), y, units, (dy, dlast), (dx, *dbegin) = call.x, call.y, call.op.units, call.dys, call.dx
    gates, inner = call.saved["gates"], call.saved["inner"]
    da, db, past, dh, one = (call.scratch[key] for key in ("da", "db", "past", "dh", "one"))
    w_x, w_h, dw = call.w["weight_ih"], call.w["weight_hh"], call.dw
    steps, a_steps = by_gate(gates, units), by_gate(da, units)
    flat_a, flat_b, flat_x, flat_past = (array.reshape(-1, array.shape[2]) for array in (da, db, x, past))
    flat_dx, unit = None if dx is None else dx.reshape(flat_x.shape), dy.dtype.type(1)

    def run() -> None:
        nonlocal dh, one
        if begin:
            np.copyto(past[:, 0], begin[0])
        else:
            past[:, 0].fill(0)
        np.copyto(past[:, 1:], y[:, :-1])
        np.copyto(dh, dlast)
        for t in reversed(range(len(steps))):
            (r, z, m), (dr, dz, dm) = steps[t], a_steps[t]
            dh += dy[:, t]
            np.subtract(past[:, t], m, out=dz)
            dz *= dh
            dz *= z
            np.subtract(unit, z, out=one)
            dz *= one
            one *= dh
            np.multiply(m, m, out=dm)
            np.subtract(unit, dm, out=dm)
            dm *= one
            np.subtract(unit, r, out=dr)
            dr *= r
            dr *= inner[:, t]
            dr *= dm
            np.copyto(db[:, t], da[:, t])
            np.multiply(dm, r, out=db[:, t, 2 * units :])
            np.multiply(dh, z, out=one)
            np.matmul(db[:, t], w_h, out=dh)
            dh += one
        if dbegin and dbegin[0] is not None:
            np.copyto(dbegin[0], dh)
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
