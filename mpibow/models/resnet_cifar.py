"""ResNets for images of 32 x 32 (He et al., arXiv:1512.03385, section 4.2): 3 stages of n blocks, 6 n + 2 layers.

The paper's shortcuts (its option A) have no weights where a stage starts: every second pixel, then zero channels.
`projection` takes a 1x1 convolution and batch norm there (option B). `crossbow` is the net that Crossbow trained (PVLDB
12(11), 2019), 469,114 weights with 32 layers: a projection in the first stage as well, where the shapes would match
without, and a 7x7 mean before the dense layer, which leaves 2x2 pixels of the 8x8.
"""

from collections.abc import Callable
from typing import Literal

from mpibow.graph.graph import Tensor
from mpibow.ops import add, avg_pool2d, batch_norm, conv2d, dense, flatten, global_avg_pool2d, pad_channels, relu

Shortcut = Literal["identity", "projection", "crossbow"]


def _of_layers(layers: int) -> Callable[..., Tensor]:
    def net(image: Tensor, classes: int, *, shortcut: Shortcut = "identity") -> Tensor:
        """image (n, c, 32, 32) -> logits (n, classes)."""
        x = relu(batch_norm(conv2d(image, 16, 3, padding=1, bias=False)))
        for channels in (16, 32, 64):
            for number in range((layers - 2) // 6):
                stride = 2 if number == 0 and channels > 16 else 1
                x = _block(x, channels, stride, shortcut, first=number == 0)
        x = flatten(avg_pool2d(x, 7, stride=1)) if shortcut == "crossbow" else global_avg_pool2d(x)
        return dense(x, classes)

    net.__name__ = f"resnet{layers}"
    return net


def _block(x: Tensor, channels: int, stride: int, shortcut: Shortcut, first: bool) -> Tensor:
    y = relu(batch_norm(conv2d(x, channels, 3, stride=stride, padding=1, bias=False)))
    y = batch_norm(conv2d(y, channels, 3, padding=1, bias=False))
    if first and (shortcut == "crossbow" or (shortcut == "projection" and stride > 1)):
        x = batch_norm(conv2d(x, channels, 1, stride=stride, bias=False))
    elif stride > 1:
        x = pad_channels(avg_pool2d(x, 1, stride=stride), channels)
    return relu(add(y, x))


resnet20, resnet32, resnet44, resnet56, resnet110 = map(_of_layers, (20, 32, 44, 56, 110))
