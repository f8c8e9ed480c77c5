"""Layer, group and root mean square normalisation: rows of neighbour elements, each by its own moments.

A row is a sample's group of channels, and all positions of these; under layer and RMS norm the features are channels
of one position. The formulas: Ba et al., arXiv:1607.06450; Wu and He, arXiv:1803.08494; Zhang and Sennrich,
arXiv:1910.07467.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mpibow.errors import ShapeError
from mpibow.graph import (
    FLOAT,
    Array,
    Buffers,
    Initialiser,
    Kernel,
    Op,
    Run,
    Shape,
    Shapes,
    Specs,
    Tensor,
    Weight,
    Weights,
    binds,
)

from .initialisers import ONE, ZERO
from .permute import permute

__all__ = ["GroupNorm", "LayerNorm", "RmsNorm", "group_norm", "layer_norm", "rms_norm"]


@dataclass(frozen=True)
class Extents:
    """Rows of `channels` times `positions` elements; row i takes group i mod `groups` of the weights."""

    rows: int
    groups: int
    channels: int
    positions: int


class Norm:
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, the variance being the mean square of the deviations.

    Weight and bias do not decay. Without `centred` mean and bias are none.
    """

    epsilon: float
    initial: Initialiser
    initial_bias: Initialiser = ZERO
    centred = True
    reads = "xw"

    def infer(self, x: Shape) -> Shape:
        if not 0.0 < self.epsilon < math.inf:
            raise ShapeError(f"epsilon must be above 0, got {self.epsilon}")
        return x

    def weight_shape(self, x: Shape) -> Shape:
        raise AssertionError

    def extents(self, x: Shape) -> Extents:
        raise AssertionError

    def weights(self, x: Shape) -> Weights:
        shape = self.weight_shape(x)
        initial = {"weight": self.initial}
        features = math.prod(shape)
        if self.centred:
            initial["bias"] = self.initial_bias
        return {key: Weight(shape, each, features, features, decay=False) for key, each in initial.items()}


class _OverAxes(Norm, Op):
    axes: int
    epsilon: float
    initial: Initialiser = ONE

    def infer(self, *shapes: Shape) -> Shape:
        if not 1 <= self.axes < len(shapes[0]):
            raise ShapeError(f"axes must be between 1 and {len(shapes[0]) - 1}, all but the batch, got {self.axes}")
        return super().infer(*shapes)

    def weight_shape(self, x: Shape) -> Shape:
        return x[-self.axes :]

    def extents(self, x: Shape) -> Extents:
        return Extents(math.prod(x[: -self.axes]), 1, math.prod(x[-self.axes :]), 1)


class LayerNorm(_OverAxes):
    """Norm over the last `axes` axes, whose shape weight and bias have."""

    initial_bias: Initialiser = ZERO
    kind = "layer_norm"


class RmsNorm(_OverAxes):
    """y = x / sqrt(mean of x^2 + epsilon) * weight, the mean over the last `axes` axes, whose shape weight has."""

    kind = "rms_norm"
    centred = False


class GroupNorm(Norm, Op):
    """Norm by sample over a group of neighbour channels (axis 1); weight and bias are one a channel."""

    groups: int
    epsilon: float
    initial: Initialiser = ONE
    initial_bias: Initialiser = ZERO
    kind = "group_norm"

    def infer(self, x: Shape) -> Shape:
        if len(x) < 2 or self.groups < 1 or x[1] % self.groups:
            raise ShapeError(f"input must be (batch, channels, ...), and groups divide the channels, got {self.groups}")
        return super().infer(x)

    def weight_shape(self, x: Shape) -> Shape:
        return x[1:2]

    def extents(self, x: Shape) -> Extents:
        return Extents(x[0] * self.groups, self.groups, x[1] // self.groups, math.prod(x[2:]))


Axes = int | Sequence[int]


def over_axes(x: Tensor, axes: Axes, operator: Callable[[Tensor, int], Tensor]) -> Tensor:
    """operator(x, n) over the last n axes of x, of which there are `axes`; axes that are named are put last, and back.

    A weight of the operator has their shape, in x's order. Raises ShapeError where they are not axes behind the first.
    """
    if isinstance(axes, int):
        return operator(x, axes)
    rank = x.ndim
    chosen = sorted(axis + rank * (axis < 0) for axis in axes)
    others = [axis for axis in range(rank) if axis not in chosen]
    if not chosen or len(set(chosen)) < len(chosen) or not 0 < chosen[0] <= chosen[-1] < rank:
        raise ShapeError(
            f"{x.name} {x.shape}: axes {tuple(axes)} must be different ones of its {rank}, without the batch"
        )
    order = [*others, *chosen]
    if order == list(range(rank)):
        return operator(x, len(chosen))
    return permute(operator(permute(x, *order), len(chosen)), *map(order.index, range(rank)))


def layer_norm(
    x: Tensor,
    axes: Axes = 1,
    *,
    epsilon: float = 1e-5,
    initial: Initialiser = ONE,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, ...) -> the same shape, normalised over its last `axes` axes, or over a tuple of axes: (1,) for channels.

    The weight starts as `initial`, the bias as `initial_bias`; both have the shape of these axes.
    """
    return over_axes(x, axes, lambda x, n: LayerNorm(n, epsilon, initial, initial_bias)(x, name=name))


def rms_norm(
    x: Tensor, axes: Axes = 1, *, epsilon: float = 1e-6, initial: Initialiser = ONE, name: str | None = None
) -> Tensor:
    """x (n, ...) -> the same shape, divided by its root mean square over its last `axes` axes or a tuple of axes."""
    return over_axes(x, axes, lambda x, n: RmsNorm(n, epsilon, initial)(x, name=name))


def group_norm(
    x: Tensor,
    groups: int,
    *,
    epsilon: float = 1e-5,
    initial: Initialiser = ONE,
    initial_bias: Initialiser = ZERO,
    name: str | None = None,
) -> Tensor:
    """x (n, c, ...) -> the same shape, normalised per sample over each of `groups` groups of c / groups channels."""
    return GroupNorm(groups, epsilon, initial, initial_bias)(x, name=name)


# The reference kernels: rows of a matrix, and channels (rows / groups, groups channels, positions).


def moments(op: Norm, shapes: Shapes) -> Specs:
    """What forward leaves to backward: a mean, where centred, and 1 / the standard deviation of every row."""
    column = ((op.extents(shapes.y).rows, 1), FLOAT)
    return {"mean": column, "inverse": column} if op.centred else {"inverse": column}


def buffers(op: Norm, shapes: Shapes) -> Buffers:
    kept = moments(op, shapes)
    whole = (shapes.y, FLOAT)
    return Buffers(kept, {"part": whole}, {"hat": whole, "part": whole, "column": kept["inverse"]})


def _views(extents: Extents, *arrays: Array) -> list[tuple[Array, Array]]:
    """Each array by rows, and by channels."""
    channels = (extents.rows // extents.groups, extents.groups * extents.channels, extents.positions)
    return [(array.reshape(extents.rows, -1), array.reshape(channels)) for array in arrays]


@binds
def forward(
    op: Norm,
    x: Array,
    y: Array,
    part: Array,
    inverse: Array,
    weight: Array,
    epsilon: float,
    mean: Array | None = None,
    bias: Array | None = None,
) -> Run:
    (x, _), (y, channels), (part, _) = _views(op.extents(y.shape), x, y, part)
    weight = weight.reshape(-1, 1)
    bias = None if bias is None else bias.reshape(-1, 1)

    def run() -> None:
        nonlocal channels, inverse, mean, y
        if mean is not None:
            np.mean(x, axis=1, keepdims=True, out=mean)
            np.subtract(x, mean, out=y)
        else:
            np.copyto(y, x)
        np.multiply(y, y, out=part)
        np.mean(part, axis=1, keepdims=True, out=inverse)
        inverse += epsilon
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        y *= inverse
        channels *= weight
        if bias is not None:
            channels += bias

    return run


@binds
def backward(
    op: Norm,
    x: Array,
    dy: Array,
    dx: Array | None,
    hat: Array,
    part: Array,
    column: Array,
    inverse: Array,
    weight: Array,
    dweight: Array,
    mean: Array | None = None,
    dbias: Array | None = None,
) -> Run:
    (x, _), (hat, hats), (part, parts), (_, dy) = _views(op.extents(x.shape), x, hat, part, dy)
    dx = None if dx is None else dx.reshape(hat.shape)
    weight = weight.reshape(-1, 1)
    dweight = dweight.reshape(-1)
    dbias = None if dbias is None else dbias.reshape(-1)

    def run() -> None:  # with h the normalised x and g = dy weight: dx = (g - mean(g) - h mean(g h)) inverse
        nonlocal column, hat, part, parts
        if mean is not None:
            np.subtract(x, mean, out=hat)
        else:
            np.copyto(hat, x)
        hat *= inverse
        np.multiply(dy, hats, out=parts)
        np.sum(parts, axis=(0, 2), out=dweight)
        if dbias is not None:
            np.sum(dy, axis=(0, 2), out=dbias)
        if dx is None:
            return
        parts *= weight
        np.mean(part, axis=1, keepdims=True, out=column)
        hat *= column
        np.multiply(dy, weight, out=parts)
        if mean is not None:
            np.mean(part, axis=1, keepdims=True, out=column)
            part -= column
        part -= hat
        np.multiply(part, inverse, out=dx)

    return run


KERNELS = {op: Kernel(forward, backward, buffers) for op in (GroupNorm, LayerNorm, RmsNorm)}
