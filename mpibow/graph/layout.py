"""Where each weight lies in a replica's flat array."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpibow.graph.graph import Array, Graph, Shape, Weight

ALIGNMENT = 16  # elements: 64 bytes of float32, a cache line and an AVX-512 register


@dataclass(frozen=True)
class Span:
    """One weight's place: `offset` and `size` in elements, its canonical `shape`, and its physical `format`."""

    name: str
    offset: int
    size: int
    shape: Shape
    weight: Weight
    format: str = "canonical"


@dataclass(frozen=True)
class Layout:
    """All spans of a replica. Those that weight decay applies to come first: elements [0, decayed). Padding is zero."""

    spans: tuple[Span, ...]
    decayed: int
    size: int

    def views(self, flat: Array) -> dict[str, Array]:
        """The weights by name as views of `flat` (size,)."""
        return {span.name: flat[span.offset : span.offset + span.size].reshape(span.shape) for span in self.spans}

    def digest(self) -> str:
        """A hash of names, places and formats: ranks compare it before they add up flat arrays."""
        text = repr([(s.name, s.offset, s.size, s.shape, s.format) for s in self.spans] + [self.decayed, self.size])
        return hashlib.sha256(text.encode()).hexdigest()


def plan_layout(graph: Graph, decay_biases: bool = False) -> Layout:
    """Places the weights of `graph`, decayed ones first, each in the graph's order and aligned."""
    weights = {f"{node.name}.{key}": weight for node in graph.nodes for key, weight in node.weights.items()}
    return _place(
        {name: w for name, w in weights.items() if w.decay or decay_biases},
        {name: w for name, w in weights.items() if not (w.decay or decay_biases)},
    )


def plan_statistics(graph: Graph) -> Layout:
    """Places the statistics of `graph`: they belong to a replica as its weights do, but nothing is sent of them."""
    return _place({}, {f"{node.name}.{key}": s for node in graph.nodes for key, s in node.statistics.items()})


def _place(*groups: Mapping[str, Weight]) -> Layout:
    """One group after the other; the first is what weight decay applies to."""
    spans: list[Span] = []
    ends, offset = [], 0
    for group in groups:
        for name, weight in group.items():
            size = int(np.prod(weight.shape))
            spans.append(Span(name, offset, size, weight.shape, weight))
            offset += -(-size // ALIGNMENT) * ALIGNMENT
        ends.append(offset)
    return Layout(tuple(spans), decayed=ends[0], size=offset)


def initial_weights(layout: Layout, seed: int, dtype: str) -> Array:
    """The flat array (size,) that every replica starts from; each weight depends on (seed, its name) only."""
    flat = np.zeros(layout.size, dtype)
    for span, view in zip(layout.spans, layout.views(flat).values(), strict=True):
        word = int.from_bytes(hashlib.sha256(span.name.encode()).digest()[:8], "little")
        generator = np.random.Generator(np.random.Philox(key=[seed, word]))
        view[...] = span.weight.initial(generator, span.shape, span.weight.fan_in, span.weight.fan_out)
    return flat
