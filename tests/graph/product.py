"""An operator with two gradients, for graphs that fork and join. No Op: it is not one of the package's operators."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpibow.graph import FLOAT, Call, Kernel, Run, Shape, Tensor, Weight


@dataclass(frozen=True)
class Product:
    """y = x0 x1"""

    kind: ClassVar[str] = "product"
    reads = "x"
    differentiable: ClassVar[tuple[int, ...] | None] = (0, 1)
    flat: ClassVar[tuple[int, ...]] = ()

    def outputs(self, *shapes: Shape) -> tuple[Shape, ...]:
        return (self.infer(*shapes),)

    def infer(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def dtype(self, *dtypes: str) -> str:
        return FLOAT

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        return {}

    def statistics(self, *shapes: Shape) -> Mapping[str, Weight]:
        return {}

    def shares(self, i: int) -> int | None:
        return None

    def is_view(self, training: bool) -> bool:
        return False


def _forward(call: Call) -> Run:
    return lambda: np.multiply(*call.x, out=call.y)


def _backward(call: Call) -> Run:
    def run() -> None:
        for dx, other in zip(call.dx, reversed(call.x), strict=True):
            if dx is not None:
                np.multiply(call.dy, other, out=dx)

    return run


KERNEL = Kernel(_forward, _backward)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a.graph.add_all(Product(), a, b)[0]
