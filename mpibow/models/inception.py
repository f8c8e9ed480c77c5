"""Inception nets without their auxiliary classifiers: GoogLeNet's main branch and Inception-v3.

GoogLeNet has no batch norm (Szegedy et al., arXiv:1409.4842, table 1); Inception-v3 (arXiv:1512.00567, table 1) is as
torchvision has it.
"""

from mpibow.graph.graph import Tensor
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

# Channels of a module: 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5; 1x1 after pooling. Pooling between the stages.
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


Pair = tuple[int, int]


def inception_v3(image: Tensor, classes: int, *, drop: float = 0.5) -> Tensor:
    """image (n, 3, 299, 299) -> logits (n, classes), 23,834,568 weights."""
    x = _conv(_conv(image, 32, 3, stride=2), 32, 3)
    x = max_pool2d(_conv(x, 64, 3, padding=1), 3, stride=2)
    x = max_pool2d(_conv(_conv(x, 80, 1), 192, 3), 3, stride=2)
    for pooled in (32, 64, 64):
        x = _five(x, pooled)
    x = _reduce_once(x)
    for channels in (128, 160, 160, 192):
        x = _seven(x, channels)
    x = _reduce_twice(x)
    for _ in range(2):
        x = _wide(x)
    return dense(dropout(global_avg_pool2d(x), drop), classes)


def _conv(x: Tensor, channels: int, kernel: int | Pair, *, stride: int = 1, padding: int | Pair = 0) -> Tensor:
    return relu(batch_norm(conv2d(x, channels, kernel, stride=stride, padding=padding, bias=False), epsilon=1e-3))


def _pooled(x: Tensor, channels: int) -> Tensor:
    return _conv(avg_pool2d(x, 3, stride=1, padding=1), channels, 1)


def _five(x: Tensor, pooled: int) -> Tensor:
    """Figure 5: 5x5, and 3x3 twice."""
    return concat(
        _conv(x, 64, 1),
        _conv(_conv(x, 48, 1), 64, 5, padding=2),
        _conv(_conv(_conv(x, 64, 1), 96, 3, padding=1), 96, 3, padding=1),
        _pooled(x, pooled),
    )


def _reduce_once(x: Tensor) -> Tensor:
    three = _conv(x, 384, 3, stride=2)
    twice = _conv(_conv(_conv(x, 64, 1), 96, 3, padding=1), 96, 3, stride=2)
    return concat(three, twice, max_pool2d(x, 3, stride=2))


def _seven(x: Tensor, channels: int) -> Tensor:
    """Figure 6: 7x7 as 1x7 and 7x1, once and twice."""
    return concat(
        _conv(x, 192, 1),
        _down(_across(_conv(x, channels, 1), channels), 192),
        _across(_down(_across(_down(_conv(x, channels, 1), channels), channels), channels), 192),
        _pooled(x, 192),
    )


def _across(x: Tensor, channels: int) -> Tensor:
    return _conv(x, channels, (1, 7), padding=(0, 3))


def _down(x: Tensor, channels: int) -> Tensor:
    return _conv(x, channels, (7, 1), padding=(3, 0))


def _reduce_twice(x: Tensor) -> Tensor:
    three = _conv(_conv(x, 192, 1), 320, 3, stride=2)
    seven = _conv(_down(_across(_conv(x, 192, 1), 192), 192), 192, 3, stride=2)
    return concat(three, seven, max_pool2d(x, 3, stride=2))


def _wide(x: Tensor) -> Tensor:
    """Figure 7: filter banks made wide."""
    return concat(
        _conv(x, 320, 1),
        _both(_conv(x, 384, 1)),
        _both(_conv(_conv(x, 448, 1), 384, 3, padding=1)),
        _pooled(x, 192),
    )


def _both(x: Tensor) -> Tensor:
    return concat(_conv(x, 384, (1, 3), padding=(0, 1)), _conv(x, 384, (3, 1), padding=(1, 0)))
