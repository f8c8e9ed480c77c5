"""Embedding: rows of a trained table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph.graph import FLOAT, Initialiser, Op, Shape, Tensor, Weight
from mpibow.graph.kernel import Buffers, Call, Kernel, Run, Shapes
from mpibow.ops.choose import scatter
from mpibow.ops.initialisers import Gaussian

__all__ = ["Embedding", "embedding"]


@dataclass(frozen=True)
class Embedding(Op):
    """y[..., :] = weight[x[...], :], x integers; a number outside [0, count) takes the nearest row."""

    count: int
    width: int
    initial: Initialiser
    kind = "embedding"
    integers = (0,)
    differentiable = ()

    def infer(self, *shapes: Shape) -> Shape:
        if min(self.count, self.width) < 1:
            raise ShapeError(f"a table of {self.count} rows of {self.width}: both must be at least 1")
        return (*shapes[0], self.width)

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        return {"weight": Weight((self.count, self.width), self.initial, self.count, self.width)}


def embedding(
    x: Tensor, count: int, width: int, *, initial: Initialiser | None = None, name: str | None = None
) -> Tensor:
    """x (...) of integers in [0, count) -> (..., width). The table starts as `initial`, Gaussian(1.0) unless given.

    The numbers are checked when the data are read.
    """
    if x.dtype == FLOAT:
        raise ShapeError(f"embedding of {x.name}: numbers of rows must be integers, it is of floats")
    return x.graph.add(Embedding(count, width, initial or Gaussian(1.0)), x, name=name)


# The reference kernels.


def buffers(op: Embedding, shapes: Shapes) -> Buffers:
    kept = {"index": ((prod(shapes.x[0]),), "int64")}
    return Buffers(saved=kept)


def forward(call: Call) -> Run:
    x, index, table = call.x0.reshape(-1), call.saved["index"], call.w["weight"]
    y = call.y.reshape(len(index), -1)

    def run() -> None:
        np.clip(x, 0, len(table) - 1, out=index, casting="unsafe")
        table.take(index, axis=0, out=y, mode="clip")

    return run


def backward(call: Call) -> Run:
    index, table = call.saved["index"], call.dw["weight"]
    dy = call.dy.reshape(len(index), -1)
    return lambda: scatter(dy, index, table)


KERNELS = {
    Embedding: Kernel(forward, backward, buffers),
}
