"""AlexNet with one tower (Krizhevsky, arXiv:1404.5997), as torchvision and convnet-benchmarks have it, and OverFeat.

The two-tower AlexNet of NIPS 2012 has local response normalisation and grouped convolutions; this one has neither.
OverFeat is its fast model (Sermanet et al., arXiv:1312.6229, table 1), as in convnet-benchmarks.
"""

from mpibow.graph import Tensor
from mpibow.ops import conv2d, dense, dropout, flatten, max_pool2d, relu


def alexnet(image: Tensor, classes: int, *, hidden: int = 4096, drop: float = 0.5) -> Tensor:
    """image (n, 3, 224, 224) -> logits (n, classes), 61,100,840 weights."""
    x = max_pool2d(relu(conv2d(image, 64, 11, stride=4, padding=2)), 3, stride=2)
    x = max_pool2d(relu(conv2d(x, 192, 5, padding=2)), 3, stride=2)
    for channels in (384, 256, 256):
        x = relu(conv2d(x, channels, 3, padding=1))
    x = flatten(max_pool2d(x, 3, stride=2))
    for _ in range(2):
        x = relu(dense(dropout(x, drop), hidden))
    return dense(x, classes)


def overfeat(image: Tensor, classes: int, *, hidden: tuple[int, int] = (3072, 4096), drop: float = 0.5) -> Tensor:
    """image (n, 3, 231, 231) -> logits (n, classes), 145,920,872 weights; 145 million in the paper."""
    x = max_pool2d(relu(conv2d(image, 96, 11, stride=4)), 2)
    x = max_pool2d(relu(conv2d(x, 256, 5)), 2)
    for channels in (512, 1024, 1024):
        x = relu(conv2d(x, channels, 3, padding=1))
    x = flatten(max_pool2d(x, 2))
    for units in hidden:
        x = relu(dense(dropout(x, drop), units))
    return dense(x, classes)
