"""VGG nets (Simonyan and Zisserman, arXiv:1409.1556, table 1), and VGG-16 with batch norm for small images."""

from collections.abc import Sequence

from mpibow.graph import Tensor
from mpibow.ops import batch_norm, conv2d, dense, dropout, flatten, max_pool2d, relu

A = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # configurations of the paper: channels by stage
D = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg_a(image: Tensor, classes: int, *, hidden: int = 4096, drop: float = 0.5) -> Tensor:
    """image (n, 3, 224, 224) -> logits (n, classes), configuration A, 11 layers: 132,863,336 weights."""
    return _vgg(image, classes, A, hidden, drop)


def vgg16(image: Tensor, classes: int, *, hidden: int = 4096, drop: float = 0.5) -> Tensor:
    """image (n, 3, 224, 224) -> logits (n, classes), configuration D: 138,357,544 weights."""
    return _vgg(image, classes, D, hidden, drop)


def vgg16_cifar(image: Tensor, classes: int, *, drops: tuple[float, float, float] = (0.3, 0.4, 0.5)) -> Tensor:
    """image (n, 3, 32, 32) -> logits (n, classes): 15,038,116 weights for 100 classes, as Crossbow trained it.

    After Liu and Deng (ACPR 2015): batch norm behind each relu, and dropout between the convolutions of a stage.
    `drops` are the rates in the first stage, in the others, and before each dense layer.
    """
    x = image
    early, late, end = drops
    for stage in D:
        for number, channels in enumerate(stage):
            x = dropout(x, early if stage is D[0] else late) if number else x
            x = _norm(relu(conv2d(x, channels, 3, padding=1)))
        x = max_pool2d(x, 2)
    x = _norm(relu(dense(dropout(flatten(x), end), 512)))
    return dense(dropout(x, end), classes)


def _norm(x: Tensor) -> Tensor:
    return batch_norm(x, epsilon=1e-3, momentum=0.01)  # Crossbow's; its 0.99 is the share that is kept


def _vgg(image: Tensor, classes: int, stages: Sequence[Sequence[int]], hidden: int, drop: float) -> Tensor:
    x = image
    for stage in stages:
        for channels in stage:
            x = relu(conv2d(x, channels, 3, padding=1))
        x = max_pool2d(x, 2)
    x = flatten(x)
    for _ in range(2):
        x = dropout(relu(dense(x, hidden)), drop)
    return dense(x, classes)
