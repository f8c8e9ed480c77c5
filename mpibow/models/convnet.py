"""A small convolutional net for small images, which the built-in run trains on the digits."""

from typing import Literal

from mpibow.graph.graph import Tensor
from mpibow.ops import batch_norm, conv2d, dense, flatten, group_norm, max_pool2d, relu

Norm = Literal["none", "batch", "group"]


def convnet(image: Tensor, classes: int, channels: int = 16, *, layers: int = 2, norm: Norm = "none") -> Tensor:
    """image (n, c, h, w) -> logits (n, classes): 3x3 convolutions, of twice as many channels each, and one dense layer.

    All but the first are followed by a pooling of 2x2. norm: the norm between a convolution and its relu; `group` has
    groups of 8 channels.
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
