"""ResNets (He et al., arXiv:1512.03385): for ImageNet (table 1), and for images of 32 x 32 (section 4.2).

Those for ImageNet have the weights that torchvision counts. A bottleneck has its stride in the 3x3 convolution, as in
Facebook's fb.resnet.torch and torchvision ("v1.5"); the paper and Crossbow have it in the 1x1 before. The weights are
as many.

Those for 32 x 32 have 3 stages of n blocks, 6 n + 2 layers. The paper's shortcuts (its option A) have no weights where
a stage starts: every second pixel, then zero channels. `projection` takes a 1x1 convolution and batch norm there
(option B). `crossbow` is the net that Crossbow trained (PVLDB 12(11), 2019), 469,114 weights with 32 layers: a
projection in the first stage as well, where the shapes would match without, and a 7x7 mean before the dense layer,
which leaves 2x2 pixels of the 8x8.
"""

from collections.abc import Callable
from typing import Literal

from mpibow.graph import Tensor
from mpibow.ops import (
    add,
    avg_pool2d,
    batch_norm,
    conv2d,
    dense,
    flatten,
    global_avg_pool2d,
    max_pool2d,
    pad_channels,
    relu,
)

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
    return add(_conv(relu(_conv(x, channels, 3, stride)), channels, 3), _shortcut(x, channels, stride))


def _bottleneck(x: Tensor, channels: int, stride: int) -> Tensor:
    y = relu(_conv(relu(_conv(x, channels, 1)), channels, 3, stride))
    return add(_conv(y, 4 * channels, 1), _shortcut(x, 4 * channels, stride))


def _shortcut(x: Tensor, channels: int, stride: int) -> Tensor:
    return x if x.shape[1] == channels else _conv(x, channels, 1, stride)


def _conv(x: Tensor, channels: int, kernel: int, stride: int = 1) -> Tensor:
    return batch_norm(conv2d(x, channels, kernel, stride=stride, padding=kernel // 2, bias=False))


Shortcut = Literal["identity", "projection", "crossbow"]


def _of_layers(layers: int) -> Callable[..., Tensor]:
    def net(image: Tensor, classes: int, *, shortcut: Shortcut = "identity") -> Tensor:
        """image (n, c, 32, 32) -> logits (n, classes)."""
        x = relu(_conv(image, 16, 3))
        for channels in (16, 32, 64):
            for number in range((layers - 2) // 6):
                stride = 2 if number == 0 and channels > 16 else 1
                x = _block(x, channels, stride, shortcut, first=number == 0)
        x = flatten(avg_pool2d(x, 7, stride=1)) if shortcut == "crossbow" else global_avg_pool2d(x)
        return dense(x, classes)

    net.__name__ = f"resnet{layers}"
    return net


def _block(x: Tensor, channels: int, stride: int, shortcut: Shortcut, first: bool) -> Tensor:
    y = _conv(relu(_conv(x, channels, 3, stride)), channels, 3)
    if first and (shortcut == "crossbow" or (shortcut == "projection" and stride > 1)):
        x = _conv(x, channels, 1, stride)
    elif stride > 1:
        x = pad_channels(avg_pool2d(x, 1, stride=stride), channels)
    return relu(add(y, x))


resnet20, resnet32, resnet44, resnet56, resnet110 = map(_of_layers, (20, 32, 44, 56, 110))
