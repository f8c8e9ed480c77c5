"""Multi-layer perceptron (Rumelhart, Hinton and Williams, Nature 323, 1986)."""

from mpibow.graph.graph import Tensor
from mpibow.ops import dense, flatten, relu


def mlp(image: Tensor, classes: int, hidden: list[int] | None = None) -> Tensor:
    """image (n, ...) -> logits (n, classes) through relu layers of `hidden` units, [256] unless given."""
    x = flatten(image)
    for units in hidden or [256]:
        x = relu(dense(x, units))
    return dense(x, classes)
