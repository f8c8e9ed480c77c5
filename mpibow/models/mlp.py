"""Logistic regression (Cox, Journal of the Royal Statistical Society B 20(2), 1958), and the multi-layer perceptron
(Rumelhart, Hinton and Williams, Nature 323, 1986).
"""

from mpibow.graph import Tensor
from mpibow.ops import Constant, dense, flatten, relu


def logistic(image: Tensor, classes: int) -> Tensor:
    """image (n, ...) -> logits (n, classes); all weights start at 0, as befits a convex problem."""
    return dense(flatten(image), classes, initial=Constant(0.0))


def mlp(image: Tensor, classes: int, hidden: list[int] | None = None) -> Tensor:
    """image (n, ...) -> logits (n, classes) through relu layers of `hidden` units, [256] unless given."""
    x = flatten(image)
    for units in [256] if hidden is None else hidden:
        x = relu(dense(x, units))
    return dense(x, classes)
