"""Evaluation of the centre: loss and accuracy over every sample of a data set, once each. It only reads."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mpibow.comm.communicator import Call
from mpibow.comm.pulse import Pulse
from mpibow.data import Array, Samples, arrays_for, read_into
from mpibow.graph import Plan, compile_plan
from mpibow.job.device import Compute
from mpibow.job.predictor import mixes
from mpibow.metrics.metric import Measure, total
from mpibow.models import Build
from mpibow.sync.synchroniser import RunTasks
from mpibow.system import JsonObject

Each = Callable[[Array, Array, Array], None]  # samples (n,), labels (n,), logits (n, classes)
Bind = Callable[[Plan, Array, Array], Compute]  # a plan, to a centre's weights and statistics


@dataclass(frozen=True)
class Evaluation:
    """Means over `count` samples (the loss's over the parts that count in it), and the seconds taken.

    There is no accuracy where the data have no classes. `metrics` are by name, as JSON has them.
    """

    loss: float
    accuracy: float | None
    count: int
    seconds: float
    top_k_accuracy: float | None = None
    metrics: JsonObject = field(default_factory=dict)


def is_chance(found: Evaluation, classes: int) -> bool:
    """Whether the accuracy is that of guesses: 1 / classes, and two standard errors of so many samples or a quarter."""
    share = 1 / classes
    more = min(2 * math.sqrt(share * (1 - share) / max(found.count, 1)), share / 4)
    return found.accuracy is not None and classes > 1 and found.accuracy <= share + more


class Evaluator:
    """`plan` is an evaluation plan; threads each bind it once, to one copy of centre and statistics.

    Samples whose label is `ignore` are left out, of data with classes; other losses count their labels themselves.
    """

    def __init__(self, plan: Plan, build: Build, ignore: int | None, bind: Bind, measures: Sequence[Measure] = ()):
        """`build` gives the plan's graph for other batch sizes; `bind` is the device's."""
        self._build = build
        self._bind = bind
        self._measures = tuple(measures)
        self._mixes: bool | None = None  # whether outputs depend on a batch's other samples; None before it is known
        self._rests = dict[int, tuple[Compute, dict[str, Array]]]()  # where they do: for the last samples of data
        self._summed = [name for name in ("loss", "accuracy", "top_k") if name in plan.graph.outputs]
        self._ignore = ignore if "accuracy" in self._summed else None
        self._put = plan.kernels.put
        self._centre: Array = plan.kernels.zeros(plan.layout.size, plan.weight_dtype)
        self._batch = plan.graph.tensors[plan.graph.inputs[0]].shape[0]
        self._statistics: Array = plan.kernels.zeros(plan.statistics.size, plan.weight_dtype)
        self.plan = plan
        self._bound = list[tuple[Compute, dict[str, Array]]]()  # plans and their slots, by thread

    def __call__(
        self,
        data: Samples,
        centre: Array,
        statistics: Array,
        run: RunTasks,
        comm: Call,
        each: Each | None = None,
        *,
        workers: int = 1,
    ) -> Evaluation:
        """Means over `data`, whose samples are as the plan's inputs.

        Batches go round robin to the `workers` of all ranks; `run` is the scheduler's, `comm` the synchroniser's.
        `each` is called with this rank's samples, labels and logits, on the workers' threads.
        """
        begin = time.perf_counter()
        self._put(self._centre, centre)
        self._put(self._statistics, statistics)
        while len(self._bound) < workers:
            plan = self._bind(self.plan, self._centre, self._statistics)
            self._bound.append((plan, arrays_for(data, self._batch)))
        rank, counts, pulse = comm(lambda c: (c.rank, c.share(workers), c.pulse))  # ranks may differ in workers
        first = sum(counts[:rank])
        step = sum(counts) * self._batch
        with pulse.during("evaluation"):
            parts = run(
                [
                    partial(self._part, data, bound, range((first + w) * self._batch, data.count, step), each, pulse)
                    for w, bound in enumerate(self._bound[:workers])
                ]
            )
            totals = np.sum([sums for sums, _ in parts], axis=0)
            comm(lambda c: c.allreduce(totals))
            metrics = self._metrics([found for _, found in parts], comm)
        count, weight, *sums = totals.tolist()
        over = {"loss": weight or 1.0}
        means = {name: total / over.get(name, max(count, 1.0)) for name, total in zip(self._summed, sums, strict=True)}
        return Evaluation(
            means["loss"], means.get("accuracy"), int(count), time.perf_counter() - begin, means.get("top_k"), metrics
        )

    def _metrics(self, found: Sequence[Sequence[Any]], comm: Call) -> Any:
        """The metrics by name, from the sums of this rank's threads and the other ranks, added up in their order."""
        if not self._measures:
            return {}
        sums = _added(comm(lambda c: c.share(_added(found))))
        return {each.name: each.value(part) for each, part in zip(self._measures, sums, strict=True)}

    def _part(
        self, data: Samples, bound: tuple[Compute, dict[str, Array]], starts: range, each: Each | None, pulse: Pulse
    ) -> tuple[Array, list[Any]]:
        """The number of samples, their count in the loss's mean, and the sums over them; and the sums of metrics.

        They are of the batches that begin at `starts`.
        """
        plan, slot = bound
        totals = np.zeros(2 + len(self._summed))
        measured = list[Any]([None] * len(self._measures))
        for start in starts:
            n = min(self._batch, data.count - start)
            samples = np.minimum(np.arange(start, start + self._batch), data.count - 1)  # the last one fills up
            read_into(data, samples, slot)
            outputs = plan(slot)
            if n < self._batch and self._mixes is None:
                self._mixes = mixes(partial(plan, slot), slot, outputs, n)
            if n < self._batch and self._mixes:
                if n not in self._rests:
                    rest = compile_plan(
                        self._build(n), self.plan.layout, self.plan.kernels, self.plan.dtype, training=False
                    )
                    self._rests[n] = self._bind(rest, self._centre, self._statistics), arrays_for(data, n)
                plan, slot = self._rests[n]
                read_into(data, samples[:n], slot)
                outputs = plan(slot)
            pulse.beat()
            counted = np.ones(n, bool) if self._ignore is None else slot["label"][:n] != self._ignore
            values = {name: outputs[name][:n] for name in self._summed}
            weights = np.ones(n)
            if "count" in outputs:
                weights = outputs["count"][:n].astype(np.float64)
                values["loss"] = values["loss"] * weights
            parts = (counted, weights, *values.values())
            totals += [part.sum(dtype=np.float64, where=counted) for part in parts]
            if self._measures and counted.any():
                rows = np.flatnonzero(counted)
                measured = _added([measured, [measure.sums(outputs, slot, rows) for measure in self._measures]])
            if each is not None:
                each(samples[:n], slot["label"][:n].copy(), outputs["logits"][:n].copy())
        return totals, measured


def _added(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """The sums of every metric, added up in their order."""
    return [total(sums) for sums in zip(*parts, strict=True)]


def due(before: int, after: int, count: int, every: float) -> bool:
    """Whether a multiple of `every` epochs of `count` samples lies in (before, after], positions of the stream."""
    step = max(count * every, 1.0)
    return int(after / step) > int(before / step)
