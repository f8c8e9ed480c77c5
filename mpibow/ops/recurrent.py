"""Layers of a recurrent operator one behind the other, in one direction or both, with PyTorch's names of weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from mpibow.errors import ShapeError
from mpibow.graph.graph import Initialiser, Operator, Shape, Tensor, Weight
from mpibow.ops.concat import concat
from mpibow.ops.dropout import dropout
from mpibow.ops.flip import flip
from mpibow.ops.initialisers import Uniform
from mpibow.ops.reshape import stack


def recurrent_weights(gates: int, units: int, features: int, initial: Initialiser) -> dict[str, Weight]:
    """PyTorch's four of a layer: of the inputs and of the last output, gate below gate."""
    rows = gates * units
    return {
        "weight_ih": Weight((rows, features), initial, features, rows),
        "weight_hh": Weight((rows, units), initial, units, rows),
        "bias_ih": Weight((rows,), initial, features, rows, decay=False),
        "bias_hh": Weight((rows,), initial, units, rows, decay=False),
    }


def sequence(shapes: Sequence[Shape], units: int, states: int) -> Shape:
    """The shape of all outputs of a layer. Raises ShapeError where the input is no sequence, or a state of another."""
    x, *given = shapes
    if len(x) != 3 or units < 1:
        raise ShapeError(f"input must be (batch, steps, features) and units at least 1, got {units}")
    if len(given) != states or any(shape != (x[0], units) for shape in given):
        raise ShapeError(f"there must be {states} initial states of ({x[0]}, {units})")
    return (*x[:2], units)


def initial_of(units: int, given: Initialiser | None) -> Initialiser:
    """PyTorch's: evenly within 1 / sqrt(units)."""
    bound = 1 / sqrt(max(units, 1))
    return given or Uniform(-bound, bound)


def layered(
    op: Operator, x: Tensor, units: int, states: Sequence[Tensor], layers: int, both: bool, rate: float,
    name: str | None,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """All steps of the last layer, and its last states and those of the layers before, (layers * directions, n, units).

    `op` is that of each layer and direction, which `states`, if any, begin with; `rate` is the dropout between layers.
    """
    name, directions, graph = name or x.graph.next_name(op.kind), 1 + both, x.graph
    wanted = (layers * directions, x.shape[0], units)
    if layers < 1 or any(state.shape != wanted for state in states):
        given = "".join(f", {state.name} {state.shape}" for state in states)
        raise ShapeError(
            f"{op.kind} of {x.name} {x.shape}{given}: there must be at least 1 layer, and initial states "
            f"must be (layers * directions, batch, units), {wanted}"
        )
    last = list[Sequence[Tensor]]()
    for layer in range(layers):
        made = list[Tensor]()
        for reverse in range(directions):
            suffix = f"_l{layer}" + "_reverse" * reverse
            node = name if directions * layers == 1 else f"{name}.{suffix[1:]}"
            begin = [state[layer * directions + reverse] for state in states]
            names = {key: f"{name}.{key}{suffix}" for key in recurrent_weights(1, 1, 1, Uniform(0, 1))}
            y, *ends = graph.add_all(op, flip(x, 1) if reverse else x, *begin, name=node, names=names)
            made.append(flip(y, 1) if reverse else y)
            last.append(ends)
        x = concat(*made, axis=2) if both else made[0]
        if rate and layer < layers - 1:
            x = dropout(x, rate)
    return x, [stack(*each) for each in zip(*last, strict=True)]
