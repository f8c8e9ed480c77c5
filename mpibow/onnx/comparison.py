"""Compares a net with the model that it was read from, which the package onnx computes as ONNX defines it."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from mpibow.errors import ConfigError
from mpibow.graph.graph import FLOAT, Array, Graph
from mpibow.graph.kernel import Kernels
from mpibow.graph.layout import initial_weights
from mpibow.graph.plan import choose_layout, compile_plan
from mpibow.kernels import NUMPY
from mpibow.onnx.net import OnnxNet

if TYPE_CHECKING:
    from onnx import ModelProto

CLOSE = 1e-3  # of the largest number of an output: the package computes in the model's types, mostly float32


def compare(onnx: ModuleType, model: ModelProto, net: OnnxNet) -> str:
    """Raises ConfigError where outputs of random samples differ in evaluation; a reason where none are compared."""
    batch, generator = net.fixed or 2, np.random.default_rng(0)
    samples = dict[str, Array]()
    for value, each in net.inputs.items():
        shape = (batch, *each.shape)
        numbers = generator.standard_normal(shape) if each.dtype == FLOAT else generator.integers(2, size=shape)
        samples[value] = numbers.astype("float32" if each.dtype == FLOAT else each.dtype)
    try:
        evaluator = onnx.reference.ReferenceEvaluator(model)
        theirs = dict(zip(net.outputs, evaluator.run(list(net.outputs.values()), samples), strict=True))
    except Exception as error:  # of kinds without a name: operators or types that it lacks
        return f"it cannot compute it: {error}"
    ours = evaluated(net, samples)
    for name, y in theirs.items():
        x, largest = ours[name], float(np.abs(y[np.isfinite(y)]).max(initial=0.0))
        gap = np.abs(np.where(x == y, 0.0, x - y)).max(initial=0.0) if x.shape == y.shape else np.inf
        if not gap <= CLOSE * largest:
            raise ConfigError(
                f"from_onnx: {net.source} gives another {name} than the package onnx: they differ by {gap:.3g}, the "
                f"largest number is {largest:.3g}; please report this"
            )
    return ""


def evaluated(
    net: OnnxNet, samples: Mapping[str, Array], kernels: Kernels = NUMPY, dtype: str = "float64"
) -> dict[str, Array]:
    """The outputs by name for samples by the inputs' names in the model, in evaluation."""
    graph = Graph()
    outputs = net(*(graph.input(each.name, samples[value].shape, each.dtype) for value, each in net.inputs.items()))
    for name, output in (outputs if isinstance(outputs, Mapping) else {next(iter(net.outputs)): outputs}).items():
        graph.output(name, output)
    plan = compile_plan(graph, choose_layout(graph, kernels, training=False), kernels, dtype, training=False)
    bound = plan.bind(initial_weights(plan.layout, 0, plan.weight_dtype))
    for value, each in net.inputs.items():
        np.copyto(bound.inputs[each.name], samples[value], casting="unsafe")
    with np.errstate(all="ignore"):
        bound.run()
    return {name: bound.outputs[name] for name in net.outputs}
