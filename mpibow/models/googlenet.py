"""GoogLeNet, its main branch (Szegedy et al., arXiv:1409.4842, table 1): no auxiliary classifiers, no batch norm."""

from mpibow.graph.graph import Tensor
from mpibow.ops import concat, conv2d, dense, dropout, global_avg_pool2d, local_response_norm, max_pool2d, relu

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
