"""Logistic regression (Cox, Journal of the Royal Statistical Society B 20(2), 1958)."""

from mpibow.graph.graph import Tensor
from mpibow.ops import Constant, dense, flatten


def logistic(image: Tensor, classes: int) -> Tensor:
    """image (n, ...) -> logits (n, classes); all weights start at 0, as befits a convex problem."""
    return dense(flatten(image), classes, initial=Constant(0.0))
