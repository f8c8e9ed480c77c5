"""The place of each weight in a replica's flat array."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Never

import numpy as np

from .formats import canonical, pack, physical, unpack
from .graph import Array, ArraysByName, Graph, Shape, Weight, Weights

ALIGNMENT = 16  # elements: 64 bytes of float32, a cache line and an AVX-512 register
NONE: Mapping[str, Never] = MappingProxyType({})
TILE = 256  # elements that kernels compute at once of a gradient kept as factors; its span begins at a multiple


@dataclass(frozen=True)
class Span:
    """One weight's place: `offset` and `size` in elements, its `shape`, and the layout `format` that it lies in.

    `decays`: weight decay applies to it. With a `rank`, its gradient's span begins with two factors instead: dy as
    (units / lanes, rank, lanes), then x as (inputs, rank), both 0 beyond the batch; the gradient is dy^T x. `lanes` are
    the units that lie side by side in the format. The rest of the span is meaningless.
    """

    name: str
    offset: int
    size: int
    shape: Shape
    weight: Weight
    format: str
    rank: int = 0
    decays: bool = True

    @property
    def part(self) -> slice:
        """Its elements of the flat array."""
        return slice(self.offset, self.offset + self.size)


@dataclass(frozen=True)
class Layout:
    """All spans of a replica: decayed weights first, then the others, each in the graph's order. Padding is zero.

    With a single part, elements [0, decayed) decay. With several, part number p (weights that are trained alike) ends
    before element ends[p]. Weights, gradients, momenta and centre share one layout, which the training plan's kernels
    chose.
    """

    spans: tuple[Span, ...]
    decayed: int
    size: int
    ends: tuple[int, ...] = field(default=(), compare=False)

    def views(self, flat: Array) -> dict[str, Array]:
        """The weights by name as views of `flat` (size,), of shape physical(span.format, span.shape)."""
        return {span.name: flat[span.part].reshape(physical(span.format, span.shape)) for span in self.spans}

    def unpacked(self, flat: Array) -> dict[str, Array]:
        """The weights by name in their own shapes, to be saved, exported and compared."""
        views = self.views(flat)
        return {span.name: unpack(views[span.name], span.format, span.shape) for span in self.spans}

    def packed(self, named: ArraysByName, dtype: str) -> Array:
        """The flat array (size,) of weights given by name in their own shapes."""
        flat = np.zeros(self.size, dtype)
        for span, view in zip(self.spans, self.views(flat).values(), strict=True):
            view[...] = pack(named[span.name], span.format)
        return flat

    @cached_property
    def factors(self) -> Array:
        """The gradients that are kept as factors: int64 (their number, 5): first element, end, rank, inputs, lanes."""
        kept = [(span, physical(span.format, span.shape)[-1]) for span in self.spans if span.rank]
        found = sorted((s.offset, s.offset + s.size, s.rank, s.shape[1], lanes) for s, lanes in kept)
        return np.array(found, np.int64).reshape(-1, 5)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The elements [start, stop) of each non-empty part."""
        ends = self.ends or (self.size,)
        return [(start, stop) for start, stop in zip((0, *ends), ends, strict=False) if start < stop]

    def first(self, size: int) -> "Layout":
        """The layout of the weights before element `size`, where a part ends."""
        if size == self.size:
            return self
        spans = tuple(span for span in self.spans if span.offset < size)
        return Layout(spans, min(self.decayed, size), size, tuple(end for end in self.ends if end <= size))

    def gradients(self, flat: Array) -> dict[str, Array]:
        """The gradients in `flat` (size,) by name in the weights' shapes, factors multiplied out."""
        return self.unpacked(whole(flat, self.factors))

    def canonical(self) -> "Layout":
        """The same weights in the same order, each in the canonical layout."""
        return _place({s.name: s.weight for s in self.spans}, {s.name for s in self.spans if s.decays})

    def digest(self) -> str:
        """A hash of names, places and formats: ranks compare it before they add up flat arrays."""
        text = repr([(s.name, s.offset, s.size, s.shape, s.format) for s in self.spans] + [self.decayed, self.size])
        return hashlib.sha256(text.encode()).hexdigest()


def halves(row: Array, factor: Sequence[int]) -> tuple[Array, Array]:
    """dy (units / lanes, rank, lanes) and x (inputs, rank) of a gradient that `row` (size,) holds as this `factor`."""
    start, stop, rank, inputs, lanes = factor
    middle = start + (stop - start) // inputs * rank
    return row[start:middle].reshape(-1, rank, lanes), row[middle : middle + inputs * rank].reshape(inputs, rank)


def whole(gradients: Array, factors: Array) -> Array:
    """Gradients (..., size) with their factors (Layout.factors) multiplied out: a copy if there are any."""
    if not len(factors):
        return gradients
    made = gradients.copy()
    for row in made.reshape(-1, made.shape[-1]):
        for factor in factors.tolist():
            row[factor[0] : factor[1]] = np.einsum("urv,ir->uiv", *halves(row, factor)).reshape(-1)
    return made


def plan_layout(
    graph: Graph,
    decay_biases: bool = False,
    formats: Mapping[str, str] = NONE,
    ranks: Mapping[str, int] = NONE,
    parts: Mapping[str, int] = NONE,
    aligned: int = ALIGNMENT,
) -> Layout:
    """Places the weights of `graph`, decayed ones first, each in the graph's order and aligned.

    `formats` are their layouts by name, if not canonical; `ranks` are the ranks of gradients that are kept as factors;
    `parts` are the weights' part numbers, 0 if not given: lower parts come first, and each begins at a multiple of
    `aligned` elements. Weights that the loss does not depend on are not `trained`.
    """
    reached = graph.behind([graph.outputs["loss"]], flat=False) if "loss" in graph.outputs else {*graph.tensors}
    weights = {
        node.full(key): replace(weight, trained=not reached.isdisjoint(node.made))
        for node in graph.nodes
        for key, weight in node.weights.items()
    }
    decayed = {name for name, weight in weights.items() if weight.decay or decay_biases}
    return _place(weights, decayed, formats, ranks, parts, aligned)


def plan_statistics(graph: Graph) -> Layout:
    """Places the statistics of `graph`: they belong to a replica as its weights do, but are never sent."""
    return _place({node.full(key): s for node in graph.nodes for key, s in node.statistics.items()}, ())


def _place(
    weights: Weights,
    decayed: Collection[str],
    formats: Mapping[str, str] = NONE,
    ranks: Mapping[str, int] = NONE,
    parts: Mapping[str, int] = NONE,
    aligned: int = ALIGNMENT,
) -> Layout:
    """Places weights part by part, and in each part the decayed ones first."""
    names = sorted(weights, key=lambda name: name not in decayed)
    spans = {}
    ends = list[int]()
    offset = 0
    decaying = 0
    for part in range(max(parts.values(), default=0) + 1):
        offset += -offset % aligned
        ends[-1:] = [offset] * bool(ends)
        for name in names:
            if parts.get(name, 0) != part:
                continue
            weight = weights[name]
            begin = offset
            tag = formats.get(name) or canonical(weight.shape)
            size = int(np.prod(physical(tag, weight.shape)))
            rank = ranks.get(name, 0)
            if rank:
                offset += -offset % TILE
            spans[name] = Span(name, offset, size, weight.shape, weight, tag, rank, name in decayed)
            offset += -(-size // ALIGNMENT) * ALIGNMENT
            decaying += offset - begin if name in decayed else 0
        ends.append(offset)
    return Layout(tuple(spans[name] for name in names), decaying, offset, tuple(ends))


def repack(flat: Array, source: Layout, target: Layout) -> Array:
    """flat (..., source.size + n) in the layout `target`, (..., target.size + n); the last n elements are kept."""
    if source.digest() == target.digest():
        return flat
    packed = [
        np.concatenate([target.packed(source.unpacked(row[: source.size]), flat.dtype.name), row[source.size :]])
        for row in flat.reshape(-1, flat.shape[-1])
    ]
    return np.stack(packed).reshape(*flat.shape[:-1], -1)


def initial_weights(layout: Layout, seed: int, dtype: str) -> Array:
    """The flat array (size,) that every replica starts from; each weight depends on (seed, its name) only."""
    named = {}
    for span in layout.spans:
        word = int.from_bytes(hashlib.sha256(span.name.encode()).digest()[:8], "little")
        generator = np.random.Generator(np.random.Philox(key=[seed, word]))
        named[span.name] = span.weight.initial(generator, span.shape, span.weight.fan_in, span.weight.fan_out)
    return layout.packed(named, dtype)
