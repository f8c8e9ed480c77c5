"""A small convolutional net for small images: what the built-in run trains on the digits."""

from mpibow.graph.graph import Tensor
from mpibow.ops import conv2d, dense, flatten, max_pool2d, relu


def convnet(image: Tensor, classes: int, channels: int = 16) -> Tensor:
    """image (n, c, h, w) -> logits (n, classes): two 3x3 convolutions, pooling, one dense layer."""
    x = relu(conv2d(image, channels, 3, padding=1))
    x = max_pool2d(relu(conv2d(x, 2 * channels, 3, padding=1)), 2)
    return dense(flatten(x), classes)
