"""Predictions: the outputs of a trained net for arrays of samples, computed on the host batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from mpibow.config import Config
from mpibow.data.dataset import float32, numeric_array
from mpibow.errors import ConfigError
from mpibow.graph.bound import BoundPlan
from mpibow.graph.graph import FLOAT, Array, Graph
from mpibow.graph.plan import Plan, choose_layout, compile_plan
from mpibow.job.job import kernels_of
from mpibow.models.classifier import Build
from mpibow.models.objective import predictions, read_by


class Predictor:
    """The net that `make` gives, with `weights` by name, bound once for batches of `batch_size`.

    Raises ConfigError where the net has no outputs but its losses.
    """

    def __init__(self, make: Build, config: Config, weights: Mapping[str, Array], batch_size: int = 100) -> None:
        self.graph = make(1)  # for its shapes
        self.batch_size, self._make, self._config, self._weights = batch_size, make, config, weights
        self._outputs = predictions(self.graph)
        if not self._outputs:
            raise ConfigError(
                "predict: this net gives losses alone; train with fit(net, ..., loss=...), or use its weights"
            )
        self.inputs = read_by(self.graph, tuple(self._outputs.values()))

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """The shape of each output of one sample."""
        return {name: self.graph.tensors[tensor].shape[1:] for name, tensor in self._outputs.items()}

    def __call__(self, samples: Array | Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (n, ...) by name for samples (n, ...), those of several inputs by name.

        Raises ConfigError where they are not as in training.
        """
        given, bound = checked(self.graph, self.inputs, samples), self._bound
        count = len(next(iter(given.values())))
        found = {name: np.zeros((count, *shape), bound.outputs[name].dtype) for name, shape in self.outputs.items()}
        for start in range(0, count, self.batch_size):
            rows = slice(start, min(start + self.batch_size, count))
            for name, array in given.items():
                bound.inputs[name][: rows.stop - start] = array[rows]
            bound.run()
            for name, array in found.items():
                array[rows] = bound.outputs[name][: rows.stop - start]
        return found

    @cached_property
    def _bound(self) -> BoundPlan:
        plan = plan_of(self._make, self._config, self.batch_size)
        centre, statistics = plan.packed(self._weights, "weights")
        return plan.bind(centre, statistics=statistics)


def plan_of(make: Build, config: Config, batch_size: int) -> Plan:
    """The plan that evaluates batches of this size on the host."""
    graph, kernels = make(batch_size), kernels_of(config)[0]
    dtype = kernels.dtype(config.precision)
    return compile_plan(graph, choose_layout(graph, kernels, training=False), kernels, dtype, training=False)


def checked(graph: Graph, names: Sequence[str], given: Array | Mapping[str, Array]) -> dict[str, Array]:
    """The net's inputs by name. Raises ConfigError where they are not as in training, RecordError for no numbers."""
    if not isinstance(given, Mapping):
        if len(names) != 1:
            raise ConfigError(f"predict: the net takes {', '.join(names)}; give them by name, as {{'{names[0]}': ...}}")
        given = {names[0]: given}
    if lacking := [name for name in names if name not in given]:
        raise ConfigError(f"predict: the net takes {', '.join(names)}, {lacking[0]} is missing")
    found = dict[str, Array]()
    for name in names:
        told, tensor = "images" if name == "image" else name, graph.tensors[name]
        array = numeric_array(told, given[name])
        if array.shape[1:] != tensor.shape[1:] or array.ndim == 0:
            shape = ", ".join(map(str, ("n", *tensor.shape[1:])))
            raise ConfigError(f"{told}: must be ({shape}), got {array.shape}")
        dtype = "float32" if tensor.dtype == FLOAT else tensor.dtype
        if not np.can_cast(array.dtype, dtype, "same_kind"):
            raise ConfigError(f"{told}: must be {dtype} as in training, got {array.dtype}")
        if array.size and array.dtype.kind in "ui" and dtype != "float32":
            least, most, limits = int(array.min()), int(array.max()), np.iinfo(dtype)
            if not limits.min <= least <= most <= limits.max:
                raise ConfigError(f"{told}: must fit into {dtype} as in training, got {least} to {most}")
        found[name] = float32(told, array) if dtype == "float32" else array
    counts = {name: len(array) for name, array in found.items()}
    if len(set(counts.values())) > 1:
        raise ConfigError(f"predict: arrays must be of one length, got {counts}")
    return found
