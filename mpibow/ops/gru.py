"""Gated recurrent units over a sequence (Cho et al., arXiv:1406.1078), in PyTorch's form."""

import numpy as np

from mpibow.graph import FLOAT, Array, Buffers, Call, Initialiser, Kernel, Run, Shapes, Tensor, binds

from .recurrent import Recurrent, by_gate, outputs_before, recurrent, sigmoid, through_inputs, through_products

__all__ = ["Gru", "gru"]


class Gru(Recurrent):
    """y (n, t, units), and the last h (n, units), of x0 (n, t, features); h starts as x1 where
    `state`, else at 0.

    With a third each of a = weight_ih x[t] + bias_ih and b = weight_hh h + bias_hh, s the sigmoid:
    r = s(a0 + b0), z = s(a1 + b1), m = tanh(a2 + r b2), h <- (1 - z) m + z h, y[t] = h.
    """

    kind = "gru"
    gates = 3
    states = 1


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
    y, (h,) = recurrent(Gru, x, units, () if state is None else (state,), layers, bidirectional, dropout, initial, name)
    return y, h


# The reference kernels.


def buffers(op: Gru, shapes: Shapes) -> Buffers:
    n, t, units = shapes.y
    gates = ((n, t, 3 * units), FLOAT)
    steps = (shapes.y, FLOAT)
    one = ((n, units), FLOAT)
    return Buffers(
        saved={"gates": gates, "inner": steps},
        forward={"part": ((n, 3 * units), FLOAT)},
        backward={"da": gates, "db": gates, "past": steps, "dh": one, "one": one},
    )


@binds
def forward(
    x: Array,
    y: Array,
    y1: Array,
    gates: Array,
    inner: Array,
    part: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array,
    bias_hh: Array,
    units: int,
    x1: Array | None = None,
) -> Run:
    enter = through_inputs(x, gates, weight_ih, bias_ih)
    steps = by_gate(gates, units)
    w_h = weight_hh.T
    both = part[:, : 2 * units]
    own = part[:, 2 * units :]
    begin = np.zeros_like(y1) if x1 is None else x1

    def run() -> None:
        nonlocal own, part
        enter()
        for t, (r, z, m) in enumerate(steps):
            before = y[:, t - 1] if t else begin
            np.matmul(before, w_h, out=part)
            part += bias_hh
            gates[:, t, : 2 * units] += both
            np.copyto(inner[:, t], own)
            sigmoid(r)
            sigmoid(z)
            own *= r
            m += own
            np.tanh(m, out=m)
            h = y[:, t]
            np.subtract(before, m, out=h)  # m + z (h - m)
            h *= z
            h += m
        np.copyto(y1, y[:, -1])

    return run


@binds
def backward(
    call: Call,
    dy: Array,
    dy1: Array,
    gates: Array,
    inner: Array,
    weight_hh: Array,
    da: Array,
    db: Array,
    past: Array,
    dh: Array,
    one: Array,
    units: int,
    dx1: Array | None = None,
) -> Run:
    steps = by_gate(gates, units)
    a_steps = by_gate(da, units)
    shift = outputs_before(call, past)
    finish = through_products(call, past, da, db)

    def run() -> None:
        nonlocal dh, one
        shift()
        np.copyto(dh, dy1)
        for t in reversed(range(len(steps))):
            r, z, m = steps[t]
            dr, dz, dm = a_steps[t]
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
            np.matmul(db[:, t], weight_hh, out=dh)
            dh += one
        if dx1 is not None:
            np.copyto(dx1, dh)
        finish()

    return run


KERNELS = {Gru: Kernel(forward, backward, buffers)}
