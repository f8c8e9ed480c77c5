"""The models by name: functions that return logits, and functions that return their own losses."""

from collections.abc import Callable, Mapping

from mpibow.graph import Tensor

from .alexnet import alexnet, overfeat
from .classifier import Build, Net
from .convnet import convnet, lenet
from .factorisation import matrix_factorisation
from .inception import googlenet, inception_v3
from .mlp import logistic, mlp
from .objective import LossNet, predictions, read_by
from .resnet import BASIC, BOTTLENECK, resnet, resnet20, resnet32, resnet44, resnet56, resnet110
from .vgg import vgg16, vgg16_cifar, vgg_a

_NETS: tuple[Callable[..., Tensor], ...] = (
    alexnet,
    convnet,
    googlenet,
    inception_v3,
    lenet,
    logistic,
    mlp,
    overfeat,
    resnet20,
    resnet32,
    resnet44,
    resnet56,
    resnet110,
    *map(resnet, (*BASIC, *BOTTLENECK)),
    vgg16,
    vgg16_cifar,
    vgg_a,
)
MODELS: Mapping[str, Callable[..., Tensor]] = {net.__name__: net for net in _NETS}  # image, classes, options -> logits
OBJECTIVES: Mapping[str, Callable[..., Tensor]] = {  # ratings' inputs by name and its own options -> losses
    "matrix_factorisation": matrix_factorisation
}
