"""Every operator is written to ONNX, where ONNX Runtime computes the same numbers; or it is refused by its name."""

import numpy as np
import pytest

from mpibow import ops
from mpibow.errors import ConfigError
from mpibow.graph import FLOAT, Graph
from mpibow.onnx.model import model_of
from mpibow.onnx.node_writers import WRITERS
from tests.kernels.cases import Case, name
from tests.kernels.operators import CASES, CHECKED
from tests.onnx_models.runtime import close, evaluation, run

# Losses and what is for training alone, and operators of a script's own.
REFUSED = {
    *(ops.Accuracy, ops.Augment, ops.ClassTarget, ops.CountedMean, ops.Cutout, ops.Jitter, ops.LabelCount),
    *(ops.MatrixFactorisation, ops.Mix, ops.MixShares, ops.OneHot, ops.Own, ops.SoftCrossEntropy),
    ops.SoftmaxCrossEntropy,
}
PLANS = ("sum", "conv_norm_add_relu")  # that only plans have
WRITTEN = [
    case
    for case in CASES
    if type(case.op) in WRITERS and not isinstance(case.op, ops.Dropout) and getattr(case.op, "size", 1) not in (2, 4)
]


def test_every_operator_is_written_or_known_to_be_refused():
    assert {op for op in CHECKED if op not in WRITERS and op.kind not in PLANS} == REFUSED


def graph_of(case: Case) -> Graph:
    graph = Graph()
    inputs = [
        graph.input(f"x{i}", shape, FLOAT if dtype.startswith("float") else dtype)
        for i, (shape, dtype) in enumerate(zip(case.shapes, case.kinds, strict=True))
    ]
    for i, y in enumerate(graph.add_all(case.op, *inputs, name="node")):
        graph.output(f"y{i}", y)
    return graph


@pytest.mark.parametrize("case", WRITTEN, ids=name)
def test_operator(case: Case):
    graph, generator = graph_of(case), np.random.default_rng(0)
    plan, *held = evaluation(graph)
    weights, statistics = (generator.uniform(0.5, 1.5, each.shape) for each in held)
    bound, inputs = plan.bind(weights, statistics=statistics), {}
    for key, array in bound.inputs.items():
        if array.dtype.kind == "f":
            array[...] = generator.standard_normal(array.shape).astype(np.float32)
            array[...] = np.abs(array) + 0.125 if case.positive else array
        else:
            array[...] = generator.integers(case.integers_below if array.dtype.kind != "b" else 2, size=array.shape)
        inputs[key] = array.copy()
    with np.errstate(all="ignore"):
        bound.run()
    model = model_of(lambda batch: graph_of(case), plan.unpacked(weights, statistics))
    close(run(model.SerializeToString(), inputs), bound.outputs)


def test_an_even_local_response_norm_is_refused():
    (even,) = (case for case in CASES if isinstance(case.op, ops.LocalResponseNorm) and not case.op.size % 2)
    with pytest.raises(ConfigError, match="to_onnx: node: local_response_norm: size must be odd in ONNX, got"):
        model_of(lambda batch: graph_of(even), {})
