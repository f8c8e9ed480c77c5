"""Profiles a learner's pass on the host: each step of its plan timed in turn, and its convolutions alone."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from time import perf_counter
from typing import Any

import numpy as np

from mpibow.data import read_into
from mpibow.graph import Run, Shapes, compile_plan, initial_weights, one_by_one
from mpibow.graph.steps import Step, kind_of
from mpibow.job import Job
from mpibow.ops.products import operations_of

REPEATS = 4  # of a step by itself between two readings of the clock: few, as a pause in one of them spoils all


def profile(job: Job, seconds: float) -> dict[str, Any]:
    """Seconds of a learner's forward and backward pass: all steps in turn, by kind, with their operations and bytes;
    its convolutions alone, too. `roofline` is what the core can do in a second.

    `seconds` are for each of the two. In turn, a step finds the data of earlier steps in the caches; alone, it finds
    its own, as far as they fit. A convolution is oneDNN's or Winograd's step, without reorders of weights.
    """
    apart = replace(job.kernels, join=one_by_one, square=None)
    plan = compile_plan(job.build(job.config.batch_size, True), job.layout, apart, job.precision, training=True)
    weights = initial_weights(job.layout, job.config.seed, job.precision)
    bound = plan.bind(weights, np.zeros_like(weights))
    read_into(job.train, np.arange(job.config.batch_size) % job.train.count, bound.inputs)
    bound.run()
    steps = plan.program.steps
    operations = [_operations(step, plan.shapes[step.node.name]) for step in steps]
    convolutions = [i for i, step in enumerate(steps) if operations[i] and step.node.op.kind.startswith("conv")]
    turns = timed_in_turn(bound.runs, seconds)
    alone = timed_alone(bound.runs, convolutions, job.kernels.join, seconds) if convolutions else {}
    parts = defaultdict[str, Any](Counter)
    for step, turn, done in zip(steps, turns, operations, strict=True):
        moved = _bytes(step, plan.shapes[step.node.name])
        parts[kind_of(step)].update(count=1, seconds=turn, operations=done, bytes=moved)
    return {
        "plan": sum(turns),
        "convolutions_in_turn": sum(turns[i] for i in convolutions),
        "convolutions_alone": sum(alone.values()),
        "operations": sum(operations),
        "fastest": max((operations[i] / took for i, took in alone.items()), default=0.0),
        "roofline": roofline(),
        "parts": parts,
    }


def roofline() -> dict[str, float]:
    """Operations a second of a product of NumPy's, and bytes a second of a copy that no cache holds, on this core."""
    factor = np.ones((512, 512), np.float32)
    source = np.ones(2**24, np.float32)
    target = source.copy()
    product, copy = timed_in_turn([lambda: factor @ factor, lambda: np.copyto(target, source)], 0.2)
    return {"operations": 2 * 512**3 / product, "bytes": 2 * source.nbytes / copy}


def timed_in_turn(runs: Sequence[Run], seconds: float) -> list[float]:
    """Seconds of each of `runs`, one after the other: medians of as many rounds as `seconds` allow."""

    def once() -> list[float]:
        stamps = [perf_counter()]
        for run in runs:
            run()
            stamps.append(perf_counter())
        return np.diff(stamps).tolist()

    return _medians(once, seconds)


def timed_alone(
    runs: Sequence[Run], which: Sequence[int], join: Callable[[Sequence[Run]], Sequence[Run]], seconds: float
) -> Mapping[int, float]:
    """Seconds of each of those runs of a plan repeated by itself, by its number: medians as in `timed_in_turn`.

    A run is repeated in its turn, after running once: its inputs are then in the arena, which holds other data at other
    times, and writing the same outputs again is harmless. `join` saves the calls between the repeats.
    """
    repeated = {i: join([runs[i]] * REPEATS) for i in which}

    def once() -> list[float]:
        times = []
        for i, run in enumerate(runs):
            run()
            if i in repeated:
                begin = perf_counter()
                for call in repeated[i]:
                    call()
                times.append((perf_counter() - begin) / REPEATS)
        return times

    return dict(zip(sorted(which), _medians(once, seconds), strict=True))


def _medians(once: Callable[[], list[float]], seconds: float) -> list[float]:
    begin = perf_counter()
    rounds = [once()]
    while perf_counter() - begin < seconds:
        rounds.append(once())
    medians: list[float] = np.median(rounds, axis=0).tolist()
    return medians


def _operations(step: Step, shapes: Shapes) -> float:
    """Multiplications and additions of a step's products, by the direct algorithm."""
    if step.kind == "reorder":
        return 0.0
    once = operations_of(step.node, shapes.y, *shapes.x)
    return once * (bool(step.node.weights) + len(step.wanted)) if step.kind == "backward" else once


def _bytes(step: Step, shapes: Shapes) -> int:
    """What a step reads and writes in float32, each array once; backward has y's gradient in place of y."""
    weights = sum(prod(each.shape) for each in step.node.weights.values())
    numbers = sum(map(prod, (*shapes.x, shapes.y))) + weights
    if step.kind == "backward":
        numbers += weights + sum(prod(shapes.x[i]) for i in step.wanted)
    return 4 * numbers
