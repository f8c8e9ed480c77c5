"""LeNet (LeCun et al., Proceedings of the IEEE 86(11), 1998), and a small net, which the built-in run trains."""

from typing import Literal

from mpibow.graph import Tensor
from mpibow.ops import Xavier, batch_norm, conv2d, dense, dropout, flatten, group_norm, max_pool2d, relu


def lenet(image: Tensor, classes: int, drop: float = 0.4) -> Tensor:
    """image (n, 1, 28, 28) -> logits (n, classes): 28 -> 24 -> 12 -> 8 -> 4 by valid 5x5 convolutions and pooling.

    As Crossbow trains it (PVLDB 12(11), 2019), it has 1,111,946 weights on MNIST.
    """
    start = Xavier()  # its convolutions are linear: He's larger start lets the logits explode
    x = max_pool2d(conv2d(image, 32, 5, initial=start), 2)
    x = max_pool2d(conv2d(x, 64, 5, initial=start), 2)
    x = relu(dense(flatten(x), 1024, initial=start))
    return dense(dropout(x, drop), classes, initial=start)


Norm = Literal["none", "batch", "group"]


def convnet(image: Tensor, classes: int, channels: int = 16, *, layers: int = 2, norm: Norm = "none") -> Tensor:
    """image (n, c, h, w) -> logits (n, classes): 3x3 convolutions, of twice as many channels each, and one dense layer.

    All but the first are followed by a pooling of 2x2. norm: the norm between a convolution and its relu; `group` has
    a group for every 8 channels.
    """
    x = image
    for number in range(layers):
        x = conv2d(x, channels * 2**number, 3, padding=1, bias=norm == "none")
        if norm == "batch":
            x = batch_norm(x)
        elif norm == "group":
            x = group_norm(x, channels * 2**number // 8)
        x = relu(x) if number == 0 else max_pool2d(relu(x), 2)
    return dense(flatten(x), classes)
