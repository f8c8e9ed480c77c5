"""From a net to the graph that is trained: pixels in, one loss and one hit or miss a sample out."""

from __future__ import annotations

from collections.abc import Callable

from mpibow.data.dataset import Dataset
from mpibow.graph.graph import Graph, Tensor
from mpibow.ops import accuracy, normalise, softmax_cross_entropy

Net = Callable[[Tensor], Tensor]  # image (n, ...) -> logits (n, classes)
Build = Callable[[int], Graph]  # batch size -> graph; the weights do not depend on the batch size


def classifier(net: Net, data: Dataset, *, standardise: bool = True) -> Build:
    """Graphs with inputs image, label (and counter, with dropout) and outputs loss, accuracy and logits."""

    channels = data.shape[0]
    mean, std = (data.mean, data.std) if standardise else ((0.0,) * channels, (1.0,) * channels)

    def build(batch: int) -> Graph:
        graph = Graph()
        image = graph.input("image", (batch, *data.shape), str(data.dtype))
        label = graph.input("label", (batch,), "int32")
        logits = graph.output("logits", net(normalise(image, mean, std)))
        graph.output("loss", softmax_cross_entropy(logits, label))
        graph.output("accuracy", accuracy(logits, label))
        return graph

    return build
