"""ResNets for ImageNet (He et al., arXiv:1512.03385, table 1), with the weights that torchvision counts.

A bottleneck has its stride in the 3x3 convolution, as in Facebook's fb.resnet.torch and torchvision ("v1.5"); the paper
and Crossbow have it in the 1x1 before. The weights are as many.
"""

from collections.abc import Callable, Sequence

from mpibow.graph.graph import Tensor
from mpibow.ops import add, batch_norm, conv2d, dense, global_avg_pool2d, max_pool2d, relu

Block = Callable[[Tensor, int, int], Tensor]  # x, channels, stride -> the sum, before its relu


def resnet18(image: Tensor, classes: int) -> Tensor:
    """image (n, 3, 224, 224) -> logits (n, classes), 11,689,512 weights."""
    return _resnet(image, classes, _basic, (2, 2, 2, 2))


def resnet34(image: Tensor, classes: int) -> Tensor:
    """image (n, 3, 224, 224) -> logits (n, classes), 21,797,672 weights."""
    return _resnet(image, classes, _basic, (3, 4, 6, 3))


def resnet50(image: Tensor, classes: int) -> Tensor:
    """image (n, 3, 224, 224) -> logits (n, classes), 25,557,032 weights."""
    return _resnet(image, classes, _bottleneck, (3, 4, 6, 3))


def resnet101(image: Tensor, classes: int) -> Tensor:
    """image (n, 3, 224, 224) -> logits (n, classes), 44,549,160 weights."""
    return _resnet(image, classes, _bottleneck, (3, 4, 23, 3))


def resnet152(image: Tensor, classes: int) -> Tensor:
    """image (n, 3, 224, 224) -> logits (n, classes), 60,192,808 weights."""
    return _resnet(image, classes, _bottleneck, (3, 8, 36, 3))


def _resnet(image: Tensor, classes: int, block: Block, depths: Sequence[int]) -> Tensor:
    x = max_pool2d(relu(_conv(image, 64, 7, 2)), 3, stride=2, padding=1)
    for stage, depth in enumerate(depths):
        for number in range(depth):
            x = relu(block(x, 64 << stage, 2 if stage > 0 and number == 0 else 1))
    return dense(global_avg_pool2d(x), classes)


def _basic(x: Tensor, channels: int, stride: int) -> Tensor:
    y = _conv(relu(_conv(x, channels, 3, stride)), channels, 3)
    return add(y, _shortcut(x, channels, stride))


def _bottleneck(x: Tensor, channels: int, stride: int) -> Tensor:
    y = relu(_conv(relu(_conv(x, channels, 1)), channels, 3, stride))
    return add(_conv(y, 4 * channels, 1), _shortcut(x, 4 * channels, stride))


def _shortcut(x: Tensor, channels: int, stride: int) -> Tensor:
    return x if x.shape[1] == channels else _conv(x, channels, 1, stride)


def _conv(x: Tensor, channels: int, kernel: int, stride: int = 1) -> Tensor:
    return batch_norm(conv2d(x, channels, kernel, stride=stride, padding=kernel // 2, bias=False))
