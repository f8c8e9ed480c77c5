"""ONNX Runtime and the package onnx; tests are skipped where one is missing."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from mpibow.graph import Array, Graph, Plan, choose_layout, compile_plan, initial_weights
from mpibow.kernels import NUMPY

onnx: Any = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'mpibow[onnx]'")
runtime: Any = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")


def run(model: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name, by ONNX Runtime on one thread."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = {name: array.astype(np.float32) if array.dtype.kind == "f" else array for name, array in inputs.items()}
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, given), strict=True))


def close(found: Mapping[str, Array], wanted: Mapping[str, Array], share: float = 1e-5) -> None:
    """All are there, of the same shapes, within a share of the largest number of each."""
    assert found.keys() == wanted.keys()
    for name, y in wanted.items():
        assert found[name].shape == y.shape
        np.testing.assert_allclose(found[name], y, rtol=0, atol=share * max(float(np.abs(y).max()), 1.0))


def evaluation(graph: Graph) -> tuple[Plan, Array, Array]:
    """The plan by NumPy, its first weights and its first statistics."""
    plan = compile_plan(graph, choose_layout(graph, NUMPY, training=False), NUMPY, "float64", training=False)
    weights, statistics = (initial_weights(layout, 1, "float64") for layout in (plan.layout, plan.statistics))
    return plan, weights, statistics
