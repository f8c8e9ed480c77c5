"""ResNets for ImageNet (He et al., arXiv:1512.03385, table 1), with the weights that torchvision counts.

A bottleneck has its stride in the 3x3 convolution, as in Facebook's fb.resnet.torch and torchvision ("v1.5"); the paper
and Crossbow have it in the 1x1 before. The weights are as many.
"""

from collections.abc import Callable

from mpibow.graph.graph import Tensor
from mpibow.ops import add, batch_norm, conv2d, dense, global_avg_pool2d, max_pool2d, relu

BASIC = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}  # blocks of each stage
BOTTLENECK = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}


def resnet(name: str) -> Callable[[Tensor, int], Tensor]:
    """The net of this name in BASIC or BOTTLENECK."""
    block, depths = (_basic, BASIC[name]) if name in BASIC else (_bottleneck, BOTTLENECK[name])

    def net(image: Tensor, classes: int) -> Tensor:
        """image (n, 3, 224, 224) -> logits (n, classes)."""
        x = max_pool2d(relu(_conv(image, 64, 7, 2)), 3, stride=2, padding=1)
        for stage, depth in enumerate(depths):
            for number in range(depth):
                x = relu(block(x, 64 << stage, 2 if stage > 0 and number == 0 else 1))
        return dense(global_avg_pool2d(x), classes)

    net.__name__ = name
    return net


def _basic(x: Tensor, channels: int, stride: int) -> Tensor:
    """The sum, before its relu."""
    y = _conv(relu(_conv(x, channels, 3, stride)), channels, 3)
    return add(y, _shortcut(x, channels, stride))


def _bottleneck(x: Tensor, channels: int, stride: int) -> Tensor:
    y = relu(_conv(relu(_conv(x, channels, 1)), channels, 3, stride))
    return add(_conv(y, 4 * channels, 1), _shortcut(x, 4 * channels, stride))


def _shortcut(x: Tensor, channels: int, stride: int) -> Tensor:
    return x if x.shape[1] == channels else _conv(x, channels, 1, stride)


def _conv(x: Tensor, channels: int, kernel: int, stride: int = 1) -> Tensor:
    return batch_norm(conv2d(x, channels, kernel, stride=stride, padding=kernel // 2, bias=False))
