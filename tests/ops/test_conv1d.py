"""Convolution of sequences."""

from __future__ import annotations

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph.graph import Graph
from mpibow.graph.layout import plan_layout
from mpibow.graph.plan import compile_plan
from mpibow.kernels import NUMPY
from mpibow.testing import check_operator


def test_it_slides_its_weights_along() -> None:
    graph, generator = Graph(), np.random.default_rng(1)
    graph.output("y", mb.conv1d(graph.input("x", (2, 3, 9)), 4, 3, stride=2, padding=1, bias=False))
    layout = plan_layout(graph)
    weight, x = generator.standard_normal((4, 3, 1, 3)), generator.standard_normal((2, 3, 9))
    flat = layout.packed({layout.spans[0].name: weight}, "float64")
    bound = compile_plan(graph, layout, NUMPY, "float64", training=False).bind(flat)
    bound.inputs["x"][...] = x
    bound.run()
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    expected = [np.einsum("nck,ock->no", padded[:, :, 2 * i : 2 * i + 3], weight[:, :, 0]) for i in range(5)]
    np.testing.assert_allclose(bound.outputs["y"], np.stack(expected, -1))


def test_its_gradient() -> None:
    check_operator(lambda x: mb.conv1d(x, 4, 3, dilation=2, groups=2), (2, 4, 9))


def test_an_image_is_no_sequence() -> None:
    with pytest.raises(ShapeError) as error:
        mb.conv1d(Graph().input("x", (2, 3, 4, 5)), 4, 3)
    assert str(error.value) == "conv1d of x (2, 3, 4, 5): input must be (batch, channels, length)"
