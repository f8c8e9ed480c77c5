"""The stages of a backward pass: chunks of the flat array, by the step behind which their gradients are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.steps import gradient, weight

if TYPE_CHECKING:
    from mpibow.graph.plan import Plan


@dataclass(frozen=True)
class Stage:
    """Chunks whose weights no step reads, and whose gradients none writes, behind step `step` of the plan.

    `extents` are the elements of all weights that these chunks have a part of.
    """

    step: int
    chunks: tuple[range, ...]
    extents: tuple[tuple[int, int], ...]


def last_steps(plan: Plan, size: int, chunk: int) -> Array:
    """(chunks,): the last step that touches a weight, or its gradient, of each chunk of elements [0, size)."""
    last = {plan.program.root(name): i for i, step in enumerate(plan.program.steps) for name in step.touches}
    found = np.full(-(-size // chunk), -1)
    for span in plan.layout.spans:
        if span.offset < size:
            own = max(last.get(name, -1) for name in (weight(span.name), gradient(weight(span.name))))
            part = slice(span.offset // chunk, (span.offset + span.size - 1) // chunk + 1)
            found[part] = np.maximum(found[part], own)
    return found


def stages_of(plan: Plan, size: int, chunk: int, count: int) -> tuple[Stage, ...]:
    """Stages of elements [0, size), in the order in which the backward pass ends them; each chunk is in one.

    Each has up to 1 / `count` of the chunks, or those of a single step: there may be up to twice as many.
    """
    steps = last_steps(plan, size, chunk)
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
        stages.append(Stage(end, chunks, tuple(_extent(plan, part.start * chunk, part.stop * chunk) for part in chunks)))
        begin = end
    return tuple(stages)


def steps_in(plan: Plan, stages: Sequence[Stage], size: int, chunk: int) -> list[int]:
    """The step of each of these stages in another plan of the same layout, as one of shorter sequences."""
    steps = last_steps(plan, size, chunk)
    return [max(int(steps[part.start : part.stop].max()) for part in stage.chunks) for stage in stages]


def _ranges(numbers: Array) -> tuple[range, ...]:
    """Ascending numbers as runs."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    return tuple(range(int(run[0]), int(run[-1]) + 1) for run in np.split(numbers, cuts))


def _extent(plan: Plan, start: int, stop: int) -> tuple[int, int]:
    """The elements of all weights that lie in part in [start, stop)."""
    spans = [span for span in plan.layout.spans if span.offset < stop and span.offset + span.size > start]
    return min(span.offset for span in spans), max(span.offset + span.size for span in spans)
