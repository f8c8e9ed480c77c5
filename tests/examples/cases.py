"""The nets of examples/, each with a small batch to train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from examples import char_gpt, lstm_classifier, squeeze_excite, table_mlp, tiny_vit, unet
from mpibow.data.dataset import Array
from mpibow.graph.graph import Graph
from mpibow.models.classifier import classifier
from mpibow.models.objective import objective

SEED = 3


@dataclass(frozen=True)
class Case:
    """`inputs` are by name for a net that gives losses; else images, or rows, and their classes."""

    net: Callable[..., Any]
    inputs: dict[str, Array]
    classes: bool = False

    @property
    def batch(self) -> int:
        return len(next(iter(self.inputs.values())))

    def build(self, batch: int, training: bool) -> Graph:
        """With the output logits."""
        image = next(iter(self.inputs.values()))
        if self.classes:
            return classifier(self.net, image.shape[1:], str(image.dtype))(batch, training)
        kinds = {name: (array.shape[1:], array.dtype) for name, array in self.inputs.items()}
        graph = objective(self.net, kinds)(batch, training)
        graph.output("logits", graph.tensors["head"])
        return graph


def whole(count: int, *shape: int) -> Array:
    """Numbers below `count`."""
    return np.random.default_rng(SEED).integers(count, size=shape).astype(np.int32)


def real(*shape: int) -> Array:
    return np.random.default_rng(SEED + 1).standard_normal(shape).astype(np.float32)


CASES = {
    "char_gpt": Case(char_gpt.net, {"text": whole(128, 3, 7), "following": whole(128, 3, 7)[::-1]}),
    "tiny_vit": Case(tiny_vit.net, {"image": real(4, 1, 8, 8), "label": whole(10, 4)}, classes=True),
    "lstm_classifier": Case(
        partial(lstm_classifier.net, classes=4), {"image": whole(256, 4, 9).astype(np.uint8), "label": whole(4, 4)},
        classes=True,
    ),
    "unet": Case(unet.net, {"image": real(3, 1, 16, 12), "mask": whole(3, 3, 16, 12)}),
    "squeeze_excite": Case(squeeze_excite.net, {"image": real(5, 3, 8, 6), "label": whole(10, 5)}, classes=True),
    "table_mlp": Case(table_mlp.net, {"features": real(6, 10), "target": real(6)}),
}  # fmt: skip
