"""The models by name. Each is a function: image, classes and its own options -> logits."""

from collections.abc import Callable, Mapping

from mpibow.graph.graph import Tensor
from mpibow.models.convnet import convnet
from mpibow.models.lenet import lenet
from mpibow.models.logistic import logistic
from mpibow.models.mlp import mlp

MODELS: Mapping[str, Callable[..., Tensor]] = {
    "convnet": convnet,
    "lenet": lenet,
    "logistic": logistic,
    "mlp": mlp,
}
