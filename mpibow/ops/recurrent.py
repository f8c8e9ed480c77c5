"""Recurrent operators: what LSTM and GRU share, and layers of them one behind the other, in one direction or both."""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import ClassVar

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import Array, Call, Initialiser, InputNumbers, Op, Run, Shape, Tensor, Weight, Weights

from .concat import concat, stack
from .dropout import dropout
from .initialisers import Uniform
from .permute import flip


class Recurrent(Op):
    """y (n, t, units), and the last of each of its `states` (n, units), of x0 (n, t, features); they start as the
    inputs behind x0 where `state`, else at 0. Weights are PyTorch's: of the inputs and of the last output, `gates` of
    `units` rows one below another."""

    units: int
    initial: Initialiser
    state: bool = False
    gates: ClassVar[int]
    states: ClassVar[int]
    reads = "xwy"

    @property
    def differentiable(self) -> InputNumbers:
        return tuple(range(1 + self.states * self.state))

    def infer(self, x: Shape, *given: Shape) -> Shape:
        if len(x) != 3 or self.units < 1:
            raise ShapeError(f"input must be (batch, steps, features) and units at least 1, got {self.units}")
        if len(given) != self.states * self.state or any(shape != (x[0], self.units) for shape in given):
            raise ShapeError(f"there must be {self.states * self.state} initial states of ({x[0]}, {self.units})")
        return (*x[:2], self.units)

    def outputs(self, *shapes: Shape) -> tuple[Shape, ...]:
        y = self.infer(*shapes)
        return y, *[(y[0], y[2])] * self.states

    def weights(self, x: Shape, *states: Shape) -> Weights:
        rows = self.gates * self.units
        columns = {"ih": x[2], "hh": self.units}
        return {
            f"{kind}_{key}": Weight((rows, n)[:axes], self.initial, n, rows, decay=axes > 1)
            for kind, axes in (("weight", 2), ("bias", 1))
            for key, n in columns.items()
        }


KEYS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # in PyTorch's order


def recurrent(
    kind: type[Recurrent],
    x: Tensor,
    units: int,
    states: Sequence[Tensor],
    layers: int,
    both: bool,
    rate: float,
    initial: Initialiser | None,
    name: str | None,
) -> tuple[Tensor, list[Tensor]]:
    """`layered` of nodes with PyTorch's names of weights, NAME.weight_ih_l0 ..., for states (directions, n, units)."""
    bound = 1 / sqrt(max(units, 1))  # PyTorch's
    op = kind(units, Uniform(-bound, bound) if initial is None else initial, bool(states))
    name = name or x.graph.next_name(op.kind)
    if not 0 <= rate < 1 or (rate and layers == 1):
        raise ShapeError(f"{op.kind} of {x.name}: dropout lies between layers, of {layers}, and in [0, 1), got {rate}")
    directions = 1 + both
    wanted = (layers * directions, x.shape[0], op.units)
    if layers < 1 or any(state.shape != wanted for state in states):
        given = "".join(f", {state.name} {state.shape}" for state in states)
        raise ShapeError(
            f"{op.kind} of {x.name} {x.shape}{given}: there must be at least 1 layer, and initial states "
            f"must be (layers * directions, batch, units), {wanted}"
        )

    def add(number: int, *inputs: Tensor) -> Sequence[Tensor]:
        suffix = f"l{number // directions}" + "_reverse" * (number % directions)
        node = name if directions * layers == 1 else f"{name}.{suffix}"
        return x.graph.add_all(op, *inputs, name=node, names={key: f"{name}.{key}_{suffix}" for key in KEYS})

    return layered(add, x, states, layers, both, rate)


def layered(
    add: Callable[..., Sequence[Tensor]], x: Tensor, states: Sequence[Tensor], layers: int, both: bool, rate: float
) -> tuple[Tensor, list[Tensor]]:
    """All steps of the last layer, and its last states and those of the layers before, (layers * directions, n, units).

    `add(number, x, *states)` gives the outputs of a layer and direction, which `states`, if any, begin with; `rate` is
    the dropout between layers.
    """
    last = []
    for layer in range(layers):
        made = []
        for reverse in range(1 + both):
            number = layer * (1 + both) + reverse
            y, *ends = add(number, flip(x, 1) if reverse else x, *(state[number] for state in states))
            made.append(flip(y, 1) if reverse else y)
            last.append(ends)
        x = concat(*made, axis=2) if both else made[0]
        if rate and layer < layers - 1:
            x = dropout(x, rate)
    return x, [stack(*each) for each in zip(*last, strict=True)]


# Parts of the reference kernels. Gates are (n, t, k units): products that need no order of steps run once for all.


def sigmoid(x: Array) -> None:
    """x <- 1 / (1 + exp(-x)), by tanh, which does not overflow."""
    x *= 0.5
    np.tanh(x, out=x)
    x *= 0.5
    x += 0.5


def by_gate(gates: Array, units: int) -> list[list[Array]]:
    """Views (n, units) of gates (n, t, k units), by step and gate."""
    return [
        [gates[:, step, start : start + units] for start in range(0, gates.shape[2], units)]
        for step in range(gates.shape[1])
    ]


def through_inputs(x: Array, gates: Array, weight: Array, *biases: Array) -> Run:
    """gates <- the products with x, all steps at once, and biases."""
    flat_x = x.reshape(-1, x.shape[2])
    flat_gates = gates.reshape(-1, gates.shape[2])
    turned = weight.T

    def run() -> None:
        nonlocal flat_gates
        np.matmul(flat_x, turned, out=flat_gates)
        for bias in biases:
            flat_gates += bias

    return run


def outputs_before(call: Call, past: Array) -> Run:
    """past (n, t, units) <- y one step earlier, the initial state first."""
    y = call.y
    first = call.x[1] if call.op.state else 0

    def run() -> None:
        past[:, 0] = first
        np.copyto(past[:, 1:], y[:, :-1])

    return run


def through_products(call: Call, past: Array, dx_gates: Array, dh_gates: Array) -> Run:
    """The gradients of x and the weights, by those of the products with x and with `past`, all steps at once."""
    flat_x, flat_past, d_x, d_h = (array.reshape(-1, array.shape[2]) for array in (call.x0, past, dx_gates, dh_gates))
    w_x = call.w["weight_ih"]
    dw = call.dw
    dx = None if call.dx[0] is None else call.dx[0].reshape(flat_x.shape)

    def run() -> None:
        np.matmul(d_x.T, flat_x, out=dw["weight_ih"])
        np.matmul(d_h.T, flat_past, out=dw["weight_hh"])
        np.sum(d_x, axis=0, out=dw["bias_ih"])
        np.sum(d_h, axis=0, out=dw["bias_hh"])
        if dx is not None:
            np.matmul(d_x, w_x, out=dx)

    return run
