"""Predictions: the outputs of a trained net for arrays of samples, computed on the host batch by batch."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeGuard

import numpy as np
from PIL.Image import Image as Photo

from mpibow.config import Config
from mpibow.data import Frame, float32, is_frame, numeric_array
from mpibow.errors import ConfigError
from mpibow.graph import FLOAT, Array, ArraysByName, Graph, Plan, Shape, choose_layout, compile_plan
from mpibow.graph.bound import BoundPlan
from mpibow.kernels import KernelSet
from mpibow.models import Build, predictions, read_by
from mpibow.system import StrPath

from .checks import check_numbers, numbers_taken
from .job import kernels_of

Source = StrPath | Photo | Frame
Sources = Source | Iterable[Source]
Sample = tuple[str, ArraysByName]  # its name, and its arrays by the names of the net's inputs


def is_sources(value: object) -> TypeGuard[Sources]:
    """Whether it is files, pictures, a data frame or some of these, rather than arrays."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(first, str | os.PathLike | Photo | Iterator) or is_frame(first)


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of a sample, called by its file's name or its number, the likeliest first."""

    sample: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]

    @classmethod
    def of(cls, sample: str, logits: Array, names: Sequence[str], top: int) -> "Prediction":
        """The `top` classes of logits (classes,)."""
        likely = softmax(logits)
        order = np.argsort(-likely, kind="stable")[:top].tolist()
        return cls(sample, tuple(names[n] for n in order), tuple(likely[order].tolist()))


def softmax(logits: Array) -> Array:
    """The probabilities, in float64, of logits (..., classes)."""
    logits = logits.astype(np.float64)
    likely = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(likely / likely.sum(axis=-1, keepdims=True))


KEPT = 16  # most samples of a plan that stays bound between calls: a larger one takes memory, and is worth its start


class Predictor:
    """The net that `make` gives, with `weights` by name, in batches of up to `batch_size`.

    It stays bound for another call of as many samples, if they are few. Several threads may call it; they wait for each
    other. Raises ConfigError where the net has no outputs but its losses.
    """

    def __init__(self, make: Build, config: Config, weights: ArraysByName, batch_size: int = 100):
        self.graph = make(1)  # for its shapes
        self.batch_size = batch_size
        self._make = make
        self._config = config
        self._weights = weights
        self._outputs = predictions(self.graph)
        if not self._outputs:
            raise ConfigError(
                "predict: this net gives losses alone; train with fit(net, ..., loss=...), or use its weights"
            )
        self.inputs = read_by(self.graph, tuple(self._outputs.values()))
        self._taken = numbers_taken(self.graph)
        self._kept = dict[int, BoundPlan]()
        self._lock = threading.RLock()
        self._mixes: bool | None = None  # whether outputs depend on a batch's other samples; None before it is known

    @property
    def outputs(self) -> dict[str, Shape]:
        """The shape of each output of one sample."""
        return {name: self.graph.tensors[tensor].shape[1:] for name, tensor in self._outputs.items()}

    def classes(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names of a classifier's classes, numbers where it has another number of them; () for other nets."""
        count = self.outputs["logits"][-1] if names and [*self.outputs] == ["logits"] else 0
        return tuple(names if len(names) == count else map(str, range(count)))

    def __call__(self, samples: object) -> dict[str, Array]:
        """Outputs (n, ...) by name for samples (n, ...), those of several inputs by name.

        Raises ConfigError where they are not as in training.
        """
        given = self._checked(samples)
        return self._run(self._bound(len(next(iter(given.values())))), given)

    def each(self, samples: Iterator[Sample]) -> Iterator[tuple[str, dict[str, Array]]]:
        """The name of every sample, and its outputs by name; a batch at a time is read and computed."""
        bound = None
        while batch := list(islice(samples, self.batch_size)):
            stacked = {name: np.stack([arrays[name] for _, arrays in batch]) for name in self.inputs}
            bound = bound or self._bound(len(batch))
            found = self._run(bound, self._checked(stacked))
            for row, (name, _) in enumerate(batch):
                yield name, {output: array[row] for output, array in found.items()}

    def _checked(self, given: object) -> dict[str, Array]:
        found = checked(self.graph, self.inputs, given)
        check_numbers(self._taken, found)
        return found

    def _run(self, bound: BoundPlan, given: ArraysByName) -> dict[str, Array]:
        count, batch_size = (len(arrays[self.inputs[0]]) for arrays in (given, bound.inputs))
        found = {name: np.zeros((count, *shape), bound.outputs[name].dtype) for name, shape in self.outputs.items()}
        with self._lock:
            for start in range(0, count, batch_size):
                rows = slice(start, min(start + batch_size, count))
                part = {name: array[rows] for name, array in given.items()}
                outputs = self._outputs_of(bound, part, rows.stop - start)
                for name, array in found.items():
                    array[rows] = outputs[name][: rows.stop - start]
        return found

    def _outputs_of(self, bound: BoundPlan, part: ArraysByName, n: int) -> ArraysByName:
        """The outputs, n rows or more, of n samples, which a plan for more fills up; not where outputs would mix."""

        def run() -> ArraysByName:
            bound.run()
            return bound.outputs

        for name, array in part.items():
            bound.inputs[name][:n] = array
            bound.inputs[name][n:] = array[:1]
        outputs = run()
        if n == len(bound.inputs[self.inputs[0]]):
            return outputs
        if self._mixes is None:
            self._mixes = mixes(run, bound.inputs, {name: outputs[name] for name in self.outputs}, n)
        return self._outputs_of(self._bound(n), part, n) if self._mixes else outputs

    def _bound(self, count: int) -> BoundPlan:
        """The plan for so many samples, its batch a power of two or `batch_size`, or no larger where samples mix."""
        batch_size = min(self.batch_size, max(count, 1) if self._mixes else 1 << max(count - 1, 0).bit_length())
        bound = self._kept.get(batch_size)
        if bound is None:
            plan = plan_of(self._make, self._config, batch_size)
            centre, statistics = plan.packed(self._weights, "weights")
            bound = plan.bind(centre, statistics=statistics)
            if batch_size <= KEPT:
                self._kept = {batch_size: bound}
        return bound


def mixes(run: Callable[[], ArraysByName], inputs: ArraysByName, outputs: ArraysByName, n: int) -> bool:
    """Whether the outputs of the first n samples are others beside others: zeros, or ones where these are 0."""
    before = {name: array[:n].copy() for name, array in outputs.items()}
    for array in inputs.values():
        array[n:] = not array[n:].any()
    after = run()
    return not all(np.array_equal(array, after[name][:n], True) for name, array in before.items())


def plan_of(make: Build, config: Config, batch_size: int, kernels: KernelSet | None = None) -> Plan:
    """The plan that evaluates batches of this size, by `kernels` or the host's."""
    graph = make(batch_size)
    kernels = kernels or kernels_of(config)[0]
    dtype = kernels.dtype(config.precision)
    return compile_plan(graph, choose_layout(graph, kernels, training=False), kernels, dtype, training=False)


def checked(graph: Graph, names: Sequence[str], given: object) -> dict[str, Array]:
    """The net's inputs by name. Raises ConfigError where they are not as in training, RecordError for no numbers."""
    if not isinstance(given, Mapping):
        if len(names) != 1:
            raise ConfigError(f"predict: the net takes {', '.join(names)}; give them by name, as {{'{names[0]}': ...}}")
        given = {names[0]: given}
    if lacking := [name for name in names if name not in given]:
        raise ConfigError(f"predict: the net takes {', '.join(names)}, {lacking[0]} is missing")
    found = {}
    for name in names:
        told = "images" if name == "image" else name
        tensor = graph.tensors[name]
        array = numeric_array(told, given[name])
        if array.shape[1:] != tensor.shape[1:] or array.ndim == 0:
            shape = ", ".join(map(str, ("n", *tensor.shape[1:])))
            raise ConfigError(f"{told}: must be ({shape}), got {array.shape}")
        dtype = "float32" if tensor.dtype == FLOAT else tensor.dtype
        if not np.can_cast(array.dtype, dtype, "same_kind"):
            raise ConfigError(f"{told}: must be {dtype} as in training, got {array.dtype}")
        if array.size and array.dtype.kind in "ui" and dtype != "float32":
            least = int(array.min())
            most = int(array.max())
            limits = np.iinfo(dtype)
            if not limits.min <= least <= most <= limits.max:
                raise ConfigError(f"{told}: must fit into {dtype} as in training, got {least} to {most}")
        found[name] = float32(told, array) if dtype == "float32" else array
    counts = {name: len(array) for name, array in found.items()}
    if len(set(counts.values())) > 1:
        raise ConfigError(f"predict: arrays must be of one length, got {counts}")
    return found
