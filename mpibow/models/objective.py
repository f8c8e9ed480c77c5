"""Training graphs of nets that give losses; and such nets, made of outputs, targets and losses that compare them."""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from mpibow.errors import ConfigError, ShapeError
from mpibow.graph import FLOAT, Graph, Shape, Tensor
from mpibow.ops.dropout import COUNTER

from .classifier import Build, show_loss
from .losses import LossFunction

LossNet = Callable[..., Tensor]  # inputs by name, each (n, ...) -> losses (n,)


def objective(net: LossNet, inputs: Mapping[str, tuple[Shape, npt.DTypeLike]], *, weight: str | None = None) -> Build:
    """Graphs with these inputs (batch, *shape) and the output loss: floats are of the plan's precision.

    Where samples count unequally in the loss's mean, the output count (batch,) has the count of each. In training
    there is also the input `weight` (batch,), the samples' weights in that mean.
    """

    def build(batch: int, training: bool = False) -> Graph:
        graph = Graph(training)
        tensors = {}
        for name, (shape, given) in inputs.items():
            dtype = np.dtype(given)
            tensors[name] = graph.input(name, (batch, *shape), FLOAT if dtype.kind == "f" else dtype.name)
        try:
            found = net(**tensors)
        except TypeError as error:
            if error.__traceback__.tb_next:  # type: ignore[union-attr]  # not of the call, but of what the net does
                raise
            raise ConfigError(
                f"the data have {', '.join(inputs)}, without classes; give a loss, or a net of losses: {error}"
            ) from None
        loss = show_loss(found, batch, weight if training else None)
        if loss.shape != (batch,):
            raise ShapeError(f"{loss.name}: the net's output must be one loss a sample, ({batch},), got {loss.shape}")
        return graph

    return build


OutputNet = Callable[..., Any]  # inputs by name, each (n, ...) -> one output (n, ...), or outputs by name
Losses = LossFunction | Mapping[str, LossFunction]
OWN = ("loss", "count", "accuracy", "top_k")  # outputs of graphs that no net predicts
PREDICTION = "prediction"
TARGET = "target"


def inputs_of_net(net: OutputNet, data: Collection[str]) -> list[str]:
    """The arrays of `data`, by name, that the net takes: those that its parameters name. Raises ConfigError."""
    parameters = inspect.signature(net).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if missing := [name for name in needed if name not in data]:
        raise ConfigError(f"{missing[0]}: the net takes it, the data have {', '.join(sorted(data))}")
    return [p.name for p in parameters if p.name in data]


def supervised(
    net: OutputNet, loss: Losses, data: Collection[str], weights: Mapping[str, float] | None = None
) -> LossNet:
    """The net of losses whose graph shows the net's outputs too: `prediction`, or by their names where it has several.

    The net takes the arrays in `data` that its parameters name; the others are targets. A function
    `loss` gets output and target, mappings where there are several; losses by the names of outputs compare each with
    the target of that name, and their sum, each times its number in `weights`, is trained. Raises ConfigError where
    names do not fit together.
    """
    inputs = inputs_of_net(net, data)
    targets = [name for name in data if name not in inputs]
    if not targets:
        raise ConfigError(
            f"loss: has no target to compare with: the net takes all of {', '.join(data)}; leave it out "
            "where the net gives losses itself"
        )
    if isinstance(loss, Mapping) and (lacking := [name for name in loss if name not in targets]):
        raise ConfigError(f"loss: {lacking[0]}: needs a target of that name, the data have {', '.join(targets)}")
    if weights is not None and (not isinstance(loss, Mapping) or set(weights) - set(loss)):
        raise ConfigError(f"loss_weights: must have names of losses, got {', '.join(weights)}")

    def losses(**tensors: Tensor) -> Tensor:
        found = net(**{name: tensors[name] for name in inputs})
        outputs = found if isinstance(found, Mapping) else {PREDICTION: found}
        first = next(iter(tensors.values()))
        for name, output in outputs.items():
            _show(first.graph, name, output, first.shape[0])
        wanted = {name: tensors[name] for name in targets}
        if not isinstance(loss, Mapping):
            return loss(found, wanted if isinstance(found, Mapping) or len(wanted) > 1 else wanted[targets[0]])
        if absent := [name for name in loss if name not in outputs]:
            raise ConfigError(f"loss: {absent[0]}: is not an output; the net gives {', '.join(outputs)}")
        parts = [
            each(outputs[name], wanted[name]) * float((weights or {}).get(name, 1.0)) for name, each in loss.items()
        ]
        return reduce(add, parts)

    return losses


def predictions(graph: Graph) -> dict[str, str]:
    """The tensors of the net's outputs, by the outputs' names."""
    return {name: tensor for name, tensor in graph.outputs.items() if name not in OWN}


def read_by(graph: Graph, tensors: Collection[str]) -> list[str]:
    """The inputs of a user's data that these tensors depend on, in the graph's order."""
    found = graph.behind(tensors)
    return [name for name in graph.inputs if name in found and name != COUNTER]


def _show(graph: Graph, name: str, output: object, batch: int) -> None:
    if not isinstance(output, Tensor):
        raise ShapeError(f"{name}: the net must give a tensor or tensors by name, got {type(output).__name__}")
    if output.shape[:1] != (batch,):
        raise ShapeError(f"{name}: the net's output must be ({batch}, ...), the batch first, got {output.shape}")
    if name in OWN:
        raise ShapeError(f"{name}: is the name of an output that mpibow adds; give the net's another")
    graph.output(name, output)
