"""What a training step must do at least, counted from the net's graph: operations of its products, bytes it moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from mpibow.bench import SHAPES
from mpibow.graph.graph import FLOAT
from mpibow.graph.steps import Step, compile_steps
from mpibow.kernels.cuda.listing import rewrite
from mpibow.models import MODELS
from mpibow.models.classifier import classifier

SIZES = {"float32": 4, "tf32": 4, "bf16": 2, "fp16": 2}  # bytes of an activation
UPDATE = 5  # arrays of the weights' size: weights and momenta read and written, the gradient read


@dataclass(frozen=True)
class Work:
    """Of one learner's iteration."""

    operations: float  # multiplications and additions of convolutions and dense layers
    bytes: float  # every step reads what it needs and writes what it makes, once

    def times(self, flops: float, bandwidth: float) -> tuple[float, float]:
        """Seconds that they take at these rates."""
        return self.operations / flops, self.bytes / bandwidth


@dataclass(frozen=True)
class Reached:
    """What of a device's rates a measured speed uses; `floor` is the larger of the two times over the measured one."""

    flops: float
    bytes: float
    of_flops: float
    of_bytes: float
    floor: float


def work(model: str, batch: int, precision: str) -> Work:
    """With relu, sums and norms fused as cuDNN can; weights and gradients are float32 in every precision."""
    classes, shape = SHAPES[model]
    graph = rewrite(classifier(partial(MODELS[model], classes=classes), shape, "uint8")(batch, True), True)
    program = compile_steps(graph, True)
    outputs = {node.name: graph.tensors[node.name].shape for node in graph.nodes}
    sizes = {
        name: math.prod(value.shape)
        * (4 if value.place else SIZES[precision] if value.dtype == FLOAT else {"uint8": 1}.get(value.dtype, 4))
        for name, value in program.values.items()
        if value.constant is None
    }
    operations = sum(_operations(step, outputs) for step in program.steps)
    moved = sum(sizes.get(program.root(name), 0) for step in program.steps for name in set(step.touches))
    return Work(operations, moved + UPDATE * 4 * graph.weight_count)


def _operations(step: Step, outputs: Mapping[str, tuple[int, ...]]) -> float:
    weight = step.node.weights.get("weight")
    if weight is None or len(weight.shape) < 2:
        return 0.0
    once = 2.0 * math.prod(outputs[step.node.name]) * math.prod(weight.shape[1:])
    return once * (1 + len(step.wanted)) if step.kind == "backward" else once


def reached(found: Work, batch: int, images_per_second: float, flops: float, bandwidth: float) -> Reached:
    """`found` is the work of `batch` images; the rates are the device's own."""
    iterations = images_per_second / batch
    computing, moving = found.times(flops, bandwidth)
    return Reached(
        found.operations * iterations, found.bytes * iterations, computing * iterations, moving * iterations,
        max(computing, moving) * iterations,
    )  # fmt: skip
