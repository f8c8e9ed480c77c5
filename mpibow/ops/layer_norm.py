"""Layer normalisation (Ba et al., arXiv:1607.06450)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import ClassVar

from mpibow.errors import ShapeError
from mpibow.graph.graph import Initialiser, Op, Shape, Tensor, Weight
from mpibow.ops.initialisers import ONE, ZERO


@dataclass(frozen=True)
class LayerNorm(Op):
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, mean and variance over the last `axes` axes.

    The variance is the mean square of the deviations; weight and bias have the shape of these axes and do not decay.
    """

    axes: int
    epsilon: float
    initial: Initialiser = ONE
    initial_bias: Initialiser = ZERO
    kind: ClassVar[str] = "layer_norm"
    reads: ClassVar[frozenset[str]] = frozenset("xw")

    def infer(self, *shapes: Shape) -> Shape:
        (x,) = shapes
        if not 1 <= self.axes < len(x):
            raise ShapeError(f"axes must be between 1 and {len(x) - 1}, all but the batch, got {self.axes}")
        if not 0.0 < self.epsilon < inf:
            raise ShapeError(f"epsilon must be above 0, got {self.epsilon}")
        return x

    def weights(self, *shapes: Shape) -> Mapping[str, Weight]:
        shape = shapes[0][-self.axes :]
        features = prod(shape)
        return {
            "weight": Weight(shape, self.initial, features, features, decay=False),
            "bias": Weight(shape, self.initial_bias, features, features, decay=False),
        }


def layer_norm(
    x: Tensor,
    axes: int = 1,
    *,
    epsilon: float = 1e-5,
    initial: Initialiser = ONE,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, ...) -> the same shape, normalised over its last `axes` axes.

    The weight starts as `initial`, the bias as `initial_bias`.
    """
    return x.graph.add(LayerNorm(axes, epsilon, initial, initial_bias), x, name=name)
