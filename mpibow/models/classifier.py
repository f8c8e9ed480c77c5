"""From a net to the graph that is trained: pixels in, one loss and one hit or miss a sample out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mpibow.graph.graph import Graph, Shape, Tensor
from mpibow.models.settings import Augmentation
from mpibow.ops import accuracy, augment, centre_crop, normalise, softmax_cross_entropy

Net = Callable[[Tensor], Tensor]  # image (n, ...) -> logits (n, classes)


class Build(Protocol):
    """Batch size -> graph, to train or to evaluate with. The weights depend on neither."""

    def __call__(self, batch: int, training: bool = False) -> Graph: ...


def classifier(
    net: Net,
    shape: Shape,
    dtype: str,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    *,
    augmentation: Augmentation | None = None,
) -> Build:
    """Graphs with inputs image (batch, *shape) and label (and counter, with dropout), outputs loss, accuracy, logits.

    The net sees (image - mean) / std per channel, or the stored values where none are given. Augmentation comes first.
    """

    def build(batch: int, training: bool = False) -> Graph:
        graph = Graph()
        image = graph.input("image", (batch, *shape), dtype)
        label = graph.input("label", (batch,), "int32")
        seen = _augmented(image, augmentation or Augmentation(), training)
        scaled = normalise(seen, tuple(mean or (0.0,) * shape[0]), tuple(std or (1.0,) * shape[0]))
        logits = graph.output("logits", net(scaled))
        graph.output("loss", softmax_cross_entropy(logits, label))
        graph.output("accuracy", accuracy(logits, label))
        return graph

    return build


def _augmented(image: Tensor, settings: Augmentation, training: bool) -> Tensor:
    crop = None if settings.crop is None else (settings.crop, settings.crop)
    if training and (settings.pad or crop or settings.flip):
        return augment(image, pad=settings.pad, crop=crop, flip=settings.flip)
    return image if crop is None else centre_crop(image, crop)
