"""Gated recurrent units over a sequence (Cho et al., arXiv:1406.1078), in PyTorch's form."""

import numpy as np

from mpibow.graph.graph import FLOAT, Initialiser, Tensor
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
from mpibow.ops.recurrent import Recurrent, by_gate, initial_of, outputs_before, recurrent, sigmoid, through_products

__all__ = ["Gru", "gru"]


class Gru(Recurrent):
    """y (n, t, units), and the last h (n, units), of x0 (n, t, features); h starts as x1 where
    `state`, else at 0.

    With a third each of a = weight_ih x[t] + bias_ih and b = weight_hh h + bias_hh, s the sigmoid:
    r = s(a0 + b0), z = s(a1 + b1), m = tanh(a2 + r b2), h <- (1 - z) m + z h, y[t] = h.
    """

    kind = "gru"
    gates, states = 3, 1


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
    y, (h,) = recurrent(op, x, states, layers, bidirectional, dropout, name)
    return y, h


# The reference kernels.


def buffers(op: Gru, shapes: Shapes) -> Buffers:
    n, t, units = shapes.y
    gates, steps, one = ((n, t, 3 * units), FLOAT), (shapes.y, FLOAT), ((n, units), FLOAT)
    kept = {"gates": gates, "inner": steps}
    forward = {"part": ((n, 3 * units), FLOAT)}
    backward = {"da": gates, "db": gates, "past": steps, "dh": one, "one": one}
    return Buffers(saved=kept, forward=forward, backward=backward)


def forward(call: Call) -> Run:
    (x, *begin), (y, last), units = call.x, call.ys, call.op.units
    first = begin[0] if begin else None
    gates, inner, part = call.buffers("gates", "inner", "part")
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
    units, (dy, dlast), dbegin = call.op.units, call.dys, call.dx[1:]
    gates, inner, w_h = call.saved["gates"], call.saved["inner"], call.w["weight_hh"]
    da, db, past, dh, one = call.buffers("da", "db", "past", "dh", "one")
    steps, a_steps = by_gate(gates, units), by_gate(da, units)
    shift, finish = outputs_before(call, past), through_products(call, past, da, db)

    def run() -> None:
        nonlocal dh, one
        shift()
        np.copyto(dh, dlast)
        for t in reversed(range(len(steps))):
            (r, z, m), (dr, dz, dm) = steps[t], a_steps[t]
            dh += dy[:, t]
            np.subtract(past[:, t], m, out=dz)
            dz *= dh
            dz *= z
            np.subtract(1, z, out=one)
            dz *= one
            one *= dh
            np.multiply(m, m, out=dm)
            np.subtract(1, dm, out=dm)
            dm *= one
            np.subtract(1, r, out=dr)
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
        finish()

    return run


KERNELS = {
    Gru: Kernel(forward, backward, buffers),
}
