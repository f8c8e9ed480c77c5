"""Convolution of sequences."""

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph import Graph
from mpibow.testing import check_operator
from tests.outcome import outcome
from tests.refusals import refuses


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [(2, 1, 1, 1), (1, 0, 1, 2), (3, 4, 2, 4)])
def test_it_slides_its_weights_along(stride, padding, dilation, groups):
    graph, generator = Graph(), np.random.default_rng(1)
    window = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    graph.output("y", mb.conv1d(graph.input("x", (2, 4, 9)), 4, 3, bias=False, **window))
    weight, x = generator.standard_normal((4, 4 // groups, 1, 3)), generator.standard_normal((2, 4, 9))
    _, found = outcome(graph, {"x": x}, training=False, weights={graph.weight_names[0]: weight})
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding))).reshape(2, groups, 4 // groups, -1)
    grouped = weight.reshape(groups, 4 // groups, 4 // groups, 3)
    expected = [
        np.einsum("ngck,gock->ngo", padded[..., i : i + 2 * dilation + 1 : dilation], grouped).reshape(2, 4)
        for i in range(0, 9 + 2 * padding - 2 * dilation, stride)
    ]
    np.testing.assert_allclose(found["y"], np.stack(expected, -1))


def test_its_gradient():
    check_operator(lambda x: mb.conv1d(x, 4, 3, dilation=2, groups=2), (2, 4, 9))


def test_an_image_is_no_sequence():
    with refuses("conv1d of x (2, 3, 4, 5): input must be (batch, channels, length)", ShapeError):
        mb.conv1d(Graph().input("x", (2, 3, 4, 5)), 4, 3)
