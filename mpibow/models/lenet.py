"""LeNet (LeCun et al., Proceedings of the IEEE 86(11), 1998), as Crossbow trains it (PVLDB 12(11), 2019).

It has 1,111,946 weights on MNIST.
"""

from mpibow.graph.graph import Tensor
from mpibow.ops import Xavier, conv2d, dense, dropout, flatten, max_pool2d, relu


def lenet(image: Tensor, classes: int, drop: float = 0.4) -> Tensor:
    """image (n, 1, 28, 28) -> logits (n, classes): 28 -> 24 -> 12 -> 8 -> 4 by valid 5x5 convolutions and pooling."""
    start = Xavier()  # its convolutions are linear: He's larger start lets the logits explode
    x = max_pool2d(conv2d(image, 32, 5, initial=start), 2)
    x = max_pool2d(conv2d(x, 64, 5, initial=start), 2)
    x = relu(dense(flatten(x), 1024, initial=start))
    return dense(dropout(x, drop), classes, initial=start)
