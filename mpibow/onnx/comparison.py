"""Compares a net with the model that it was read from, which the package onnx computes as ONNX defines it."""

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from mpibow.aten.agreement import refuse_difference, run_plan
from mpibow.graph import FLOAT, Array, Graph, Kernels, choose_layout, compile_plan
from mpibow.kernels import NUMPY

from .net import OnnxNet

if TYPE_CHECKING:
    from onnx import ModelProto

CLOSE = 1e-3  # of the largest number of an output: the package computes in the model's types, mostly float32


def compare(onnx: ModuleType, model: "ModelProto", net: OnnxNet) -> str:
    """Raises ConfigError where outputs of random samples differ in evaluation; a reason where none are compared."""
    batch = net.fixed or 2
    generator = np.random.default_rng(0)
    samples = {}
    for value, each in net.inputs.items():
        shape = (batch, *each.shape)
        if each.dtype == FLOAT:
            samples[value] = generator.standard_normal(shape).astype("float32")
        else:
            samples[value] = generator.integers(2, size=shape, dtype=each.dtype)
    try:
        evaluator = onnx.reference.ReferenceEvaluator(model)
        theirs = dict(zip(net.outputs, evaluator.run(list(net.outputs.values()), samples), strict=True))
    except Exception as error:  # of kinds without a name: operators or types that it lacks
        return f"it cannot compute it: {error}"
    gives = f"from_onnx: {net.source} gives another"
    than = "than the package onnx"
    refuse_difference(gives, evaluated(net, samples), than, theirs, "please report this", CLOSE)
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
    results, _ = run_plan(plan, {each.name: samples[value] for value, each in net.inputs.items()})
    return {name: results[name] for name in net.outputs}
