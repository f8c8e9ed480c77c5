"""Builds the training graph of a net that computes its own loss, of any inputs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Graph, Shape, Tensor
from mpibow.models.classifier import Build, show_loss

LossNet = Callable[..., Tensor]  # inputs by name, each (n, ...) -> losses (n,)


def objective(net: LossNet, inputs: Mapping[str, tuple[Shape, npt.DTypeLike]], *, weight: str | None = None) -> Build:
    """Graphs with these inputs (batch, *shape) and the output loss: floats are of the plan's precision.

    Where samples count unequally in the loss's mean, the output count (batch,) has the count of each. In training
    there is also the input `weight` (batch,), the samples' weights in that mean.
    """

    def build(batch: int, training: bool = False) -> Graph:
        graph = Graph()
        kinds = {name: np.dtype(dtype) for name, (_, dtype) in inputs.items()}
        tensors = {
            name: graph.input(name, (batch, *shape), FLOAT if kinds[name].kind == "f" else kinds[name].name)
            for name, (shape, _) in inputs.items()
        }
        loss = show_loss(net(**tensors), batch, weight if training else None)
        if loss.shape != (batch,):
            raise ShapeError(f"{loss.name}: the net's output must be one loss a sample, ({batch},), got {loss.shape}")
        return graph

    return build
