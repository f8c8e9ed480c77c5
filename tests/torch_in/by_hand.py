"""ResNet-18 for small images as a net of mpibow: what `from_torch` is compared with, kernel by kernel."""

import mpibow as mb
from mpibow.graph import Tensor


def normed(x: Tensor, channels: int, kernel: int = 3, stride: int = 1) -> Tensor:
    return mb.batch_norm(mb.conv2d(x, channels, kernel, stride=stride, padding=kernel // 2, bias=False))


def block(x: Tensor, channels: int, stride: int) -> Tensor:
    y = normed(mb.relu(normed(x, channels, stride=stride)), channels)
    shortcut = x if (x.shape[1], stride) == (channels, 1) else normed(x, channels, 1, stride)
    return mb.relu(mb.add(y, shortcut))


def resnet18(image: Tensor, classes: int = 10, width: int = 64) -> Tensor:
    """(n, 3, h, w) -> logits (n, classes)."""
    x = mb.relu(normed(image, width))
    for stage in range(4):
        for i in range(2):
            x = block(x, width << stage, 2 if stage and not i else 1)
    return mb.dense(mb.global_avg_pool2d(x), classes)
