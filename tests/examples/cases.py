"""The nets of examples/, each with a small batch to train on."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

import mpibow as mb
from examples import char_gpt, lstm_classifier, squeeze_excite, table_mlp, tiny_vit, unet
from mpibow.data import Array
from mpibow.graph import Graph, Tensor
from mpibow.models.classifier import classifier
from mpibow.models.objective import TARGET, objective, supervised

SEED = 3


@dataclass(frozen=True)
class Case:
    """A net of outputs with its loss, or a classifier of images, or rows, without one."""

    net: Callable
    first: Array
    target: Array
    loss: Callable[..., Tensor] | None = None

    @property
    def batch(self) -> int:
        return len(self.first)

    @property
    def inputs(self) -> dict[str, Array]:
        """By the names of the graph's."""
        if self.loss is None:
            return {"image": self.first, "label": self.target}
        return {next(iter(inspect.signature(self.net).parameters)): self.first, TARGET: self.target}

    def build(self, batch: int, training: bool) -> Graph:
        if self.loss is None:
            return classifier(self.net, self.first.shape[1:], str(self.first.dtype))(batch, training)
        kinds = {name: (array.shape[1:], array.dtype) for name, array in self.inputs.items()}
        return objective(supervised(self.net, self.loss, kinds), kinds)(batch, training)


def whole(count: int, *shape: int) -> Array:
    """Numbers below `count`."""
    return np.random.default_rng(SEED).integers(count, size=shape).astype(np.int32)


def real(*shape: int) -> Array:
    return np.random.default_rng(SEED + 1).standard_normal(shape).astype(np.float32)


CASES = {
    "char_gpt": Case(char_gpt.gpt, whole(128, 3, 7), whole(128, 3, 7)[::-1], partial(mb.cross_entropy, axis=2)),
    "tiny_vit": Case(tiny_vit.net, real(4, 1, 8, 8), whole(10, 4)),
    "lstm_classifier": Case(partial(lstm_classifier.net, classes=4), whole(256, 4, 9).astype(np.uint8), whole(4, 4)),
    "unet": Case(unet.unet, real(3, 1, 16, 12), whole(3, 3, 16, 12), mb.cross_entropy),
    "squeeze_excite": Case(squeeze_excite.net, real(5, 3, 8, 6), whole(10, 5)),
    "table_mlp": Case(table_mlp.mlp, real(6, 10), real(6), mb.mse_loss),
}
