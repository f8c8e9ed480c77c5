"""The stages of a backward pass: chunks of the flat array, by the step behind which their gradients are there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .graph import Array
from .steps import gradient, weight

if TYPE_CHECKING:
    from .plan import Plan


@dataclass(frozen=True)
class Stage:
    """Chunks whose weights no step reads, and whose gradients none writes, behind step `step` of the plan.

    `extents` are the elements of all weights that these chunks have a part of.
    """

    step: int
    chunks: tuple[range, ...]
    extents: tuple[tuple[int, int], ...]


def steps_of(plan: "Plan", size: int, chunk: int) -> tuple[Array, Array]:
    """(chunks,) each: the first and last step that touch a weight, or its gradient, of each chunk of [0, size).

    Where none does: the number of steps, and -1.
    """
    steps = plan.program.steps
    root = plan.program.root
    last = {root(name): i for i, step in enumerate(steps) for name in step.touches}
    first = {root(name): i for i, step in reversed([*enumerate(steps)]) for name in step.touches}
    shape = -(-size // chunk)
    begins = np.full(shape, len(steps))
    ends = np.full(shape, -1)
    for span in plan.layout.spans:
        if span.offset < size:
            names = weight(span.name), gradient(weight(span.name))
            part = slice(span.offset // chunk, (span.offset + span.size - 1) // chunk + 1)
            begins[part] = np.minimum(begins[part], min(first.get(name, len(steps)) for name in names))
            ends[part] = np.maximum(ends[part], max(last.get(name, -1) for name in names))
    return begins, ends


def stages_of(plan: "Plan", size: int, chunk: int, count: int) -> tuple[Stage, ...]:
    """Stages of elements [0, size), in the order in which the backward pass ends them; each chunk is in one.

    Each has up to 1 / `count` of the chunks, or those of a single step: there may be up to twice as many.
    """
    _, steps = steps_of(plan, size, chunk)
    ends, held = list[int](), 0
    for step, chunks in zip(*np.unique(steps, return_counts=True), strict=True):
        if ends and (held + chunks) * count <= len(steps):
            ends.pop()
        else:
            held = 0
        ends.append(int(step))
        held += int(chunks)
    stages, begin = list[Stage](), -2
    for end in ends:
        chunks = _ranges(np.flatnonzero((begin < steps) & (steps <= end)))
        extents = tuple(_extent(plan, part.start * chunk, part.stop * chunk) for part in chunks)
        stages.append(Stage(end, chunks, extents))
        begin = end
    return tuple(stages)


def steps_in(plan: "Plan", stages: Sequence[Stage], size: int, chunk: int) -> tuple[list[int], list[int]]:
    """The first and last step of each of these stages in a plan of the same layout, perhaps of shorter sequences."""
    begins, ends = steps_of(plan, size, chunk)
    return (
        [min(int(begins[part.start : part.stop].min()) for part in stage.chunks) for stage in stages],
        [max(int(ends[part.start : part.stop].max()) for part in stage.chunks) for stage in stages],
    )


def _ranges(numbers: Array) -> tuple[range, ...]:
    """Ascending numbers as runs."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    return tuple(range(int(run[0]), int(run[-1]) + 1) for run in np.split(numbers, cuts))


def _extent(plan: "Plan", start: int, stop: int) -> tuple[int, int]:
    """The elements of all weights that lie in part in [start, stop)."""
    spans = [span for span in plan.layout.spans if span.offset < stop and span.offset + span.size > start]
    return min(span.offset for span in spans), max(span.offset + span.size for span in spans)
