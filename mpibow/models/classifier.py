"""From a net to the graph that is trained: pixels in, one loss and one hit or miss a sample out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpibow.graph.graph import Graph, Shape, Tensor
from mpibow.ops import accuracy, normalise, softmax_cross_entropy

Net = Callable[[Tensor], Tensor]  # image (n, ...) -> logits (n, classes)
Build = Callable[[int], Graph]  # batch size -> graph; the weights do not depend on the batch size


def classifier(
    net: Net, shape: Shape, dtype: str, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> Build:
    """Graphs with inputs image (batch, *shape) and label (and counter, with dropout), outputs loss, accuracy, logits.

    The net sees (image - mean) / std per channel, or the stored values where none are given.
    """

    def build(batch: int) -> Graph:
        graph = Graph()
        image = graph.input("image", (batch, *shape), dtype)
        label = graph.input("label", (batch,), "int32")
        scaled = normalise(image, tuple(mean or (0.0,) * shape[0]), tuple(std or (1.0,) * shape[0]))
        logits = graph.output("logits", net(scaled))
        graph.output("loss", softmax_cross_entropy(logits, label))
        graph.output("accuracy", accuracy(logits, label))
        return graph

    return build
