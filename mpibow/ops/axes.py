"""Operators over the last axes of a tensor, for other axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpibow.errors import ShapeError
from mpibow.graph.graph import Tensor
from mpibow.ops.permute import permute

Axes = int | Sequence[int]


def over(x: Tensor, axes: Axes, operator: Callable[[Tensor, int], Tensor]) -> Tensor:
    """operator(x, n) over the last n axes of x, of which there are `axes`; axes that are named are put last, and back.

    A weight of the operator has their shape, in x's order. Raises ShapeError where they are not axes behind the first.
    """
    if isinstance(axes, int):
        return operator(x, axes)
    rank = len(x.shape)
    chosen = sorted(axis + rank * (axis < 0) for axis in axes)
    others = [axis for axis in range(rank) if axis not in chosen]
    if not chosen or len(set(chosen)) < len(chosen) or not 0 < chosen[0] <= chosen[-1] < rank:
        raise ShapeError(
            f"{x.name} {x.shape}: axes {tuple(axes)} must be different ones of its {rank}, without the batch"
        )
    order = [*others, *chosen]
    if order == list(range(rank)):
        return operator(x, len(chosen))
    made = operator(permute(x, *order), len(chosen))
    return permute(made, *(order.index(axis) for axis in range(rank)))
