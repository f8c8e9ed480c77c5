"""Inception nets without their auxiliary classifiers: GoogLeNet's main branch and Inception-v3.

GoogLeNet has no batch norm (Szegedy et al., arXiv:1409.4842, table 1); Inception-v3 (arXiv:1512.00567, table 1) is as
torchvision has it.
"""

from mpibow.graph import Tensor
from mpibow.ops import (
    avg_pool2d,
    batch_norm,
    concat,
    conv2d,
    dense,
    dropout,
    global_avg_pool2d,
    local_response_norm,
    max_pool2d,
    relu,
)

Pair = tuple[int, int]
FIGURE_5 = ("1:64", "1:48 5:64", "1:64 3:96 3:96")  # of Inception-v3
# GoogLeNet's channels of a module: 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5; 1x1 after pooling. Stages begin with pooling.
STAGES = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def googlenet(image: Tensor, classes: int, *, drop: float = 0.4) -> Tensor:
    """image (n, 3, 224, 224) -> logits (n, classes), 6,998,552 weights."""
    x = local_response_norm(_halve(relu(conv2d(image, 64, 7, stride=2, padding=3))))
    x = relu(conv2d(x, 64, 1))
    x = local_response_norm(relu(conv2d(x, 192, 3, padding=1)))
    for stage in STAGES:
        x = _halve(x)
        for channels in stage:
            x = _module(x, *channels)
    return dense(dropout(global_avg_pool2d(x), drop), classes)


def _halve(x: Tensor) -> Tensor:
    return max_pool2d(x, 3, stride=2, ceil=True)


def _module(x: Tensor, one: int, reduce3: int, three: int, reduce5: int, five: int, pooled: int) -> Tensor:
    return concat(
        relu(conv2d(x, one, 1)),
        relu(conv2d(relu(conv2d(x, reduce3, 1)), three, 3, padding=1)),
        relu(conv2d(relu(conv2d(x, reduce5, 1)), five, 5, padding=2)),
        relu(conv2d(max_pool2d(x, 3, stride=1, padding=1), pooled, 1)),
    )


def inception_v3(image: Tensor, classes: int, *, drop: float = 0.5) -> Tensor:
    """image (n, 3, 299, 299) -> logits (n, classes), 23,834,568 weights."""
    x = _branch(_conv(_conv(image, 32, 3, stride=2), 32, 3), "3:64")
    x = _conv(_branch(max_pool2d(x, 3, stride=2), "1:80"), 192, 3)
    x = max_pool2d(x, 3, stride=2)
    for pooled in (32, 64, 64):
        x = concat(*(_branch(x, each) for each in FIGURE_5), _pooled(x, pooled))
    x = _reduce(x, _conv(x, 384, 3, stride=2), "1:64 3:96", 96)
    for c in (128, 160, 160, 192):
        once = f"1:{c} 1x7:{c} 7x1:192"
        twice = f"1:{c} 7x1:{c} 1x7:{c} 7x1:{c} 1x7:192"
        x = concat(_branch(x, "1:192"), _branch(x, once), _branch(x, twice), _pooled(x, 192))
    x = _reduce(x, _conv(_branch(x, "1:192"), 320, 3, stride=2), "1:192 1x7:192 7x1:192", 192)
    for _ in range(2):
        x = concat(_branch(x, "1:320"), _both(_branch(x, "1:384")), _both(_branch(x, "1:448 3:384")), _pooled(x, 192))
    return dense(dropout(global_avg_pool2d(x), drop), classes)


def _conv(x: Tensor, channels: int, kernel: int | Pair, *, stride: int = 1, padding: Pair = (0, 0)) -> Tensor:
    return relu(batch_norm(conv2d(x, channels, kernel, stride=stride, padding=padding, bias=False), epsilon=1e-3))


def _branch(x: Tensor, convolutions: str) -> Tensor:
    """Convolutions one after the other, as kernel:channels, that keep sizes; "1x7" is 1 high and 7 wide."""
    for each in convolutions.split():
        kernel, channels = each.split(":")
        height, width = map(int, (kernel if "x" in kernel else f"{kernel}x{kernel}").split("x"))
        x = _conv(x, int(channels), (height, width), padding=(height // 2, width // 2))
    return x


def _pooled(x: Tensor, channels: int) -> Tensor:
    return _branch(avg_pool2d(x, 3, stride=1, padding=1), f"1:{channels}")


def _reduce(x: Tensor, first: Tensor, second: str, channels: int) -> Tensor:
    """Half the size: `first`, a branch that ends in `channels`, and pooling."""
    return concat(first, _conv(_branch(x, second), channels, 3, stride=2), max_pool2d(x, 3, stride=2))


def _both(x: Tensor) -> Tensor:
    return concat(_branch(x, "1x3:384"), _branch(x, "3x1:384"))
