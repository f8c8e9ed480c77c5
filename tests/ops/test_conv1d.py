"""Convolution of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph.graph import Graph
from mpibow.graph.layout import plan_layout
from mpibow.graph.plan import compile_plan
from mpibow.kernels import NUMPY
from mpibow.testing import check_operator
from tests.oracle import pytorch


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


@pytest.mark.torch
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "padding", "dilation", "groups"),
    [(4, 3, 1, 0, 1, 1), (6, 3, 2, 1, 1, 2), (4, 2, 1, 3, 2, 4), (2, 1, 3, 0, 1, 1), (8, 5, 2, 4, 2, 2)],
)
def test_it_is_pytorchs(
    channels: int, kernel: int, stride: int, padding: int, dilation: int, groups: int, bias: bool
) -> None:
    torch: Any = pytorch()
    window = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    generator, graph = np.random.default_rng(2), Graph()
    x = generator.standard_normal((2, 4, 13))
    y = mb.conv1d(mb.parameter(x.shape, initial=lambda *_: x, name="x"), channels, kernel, bias=bias, **window)
    dy = generator.standard_normal(y.shape)
    graph.output("y", y)
    graph.output("loss", mb.sum(mb.reshape(y * graph.input("dy", y.shape), (1, -1))))
    layout = plan_layout(graph)
    weights = generator.standard_normal(layout.size)
    named = {**layout.unpacked(weights), "x.weight": x}
    flat = layout.packed(named, "float64")
    bound = compile_plan(graph, layout, NUMPY, "float64", training=True).bind(flat, slopes := np.zeros_like(flat))
    bound.inputs["dy"][...] = dy
    bound.run()
    given = {key: torch.from_numpy(array.copy()).requires_grad_() for key, array in named.items()}
    w, b = given["conv1.weight"], given.get("conv1.bias")
    expected = torch.nn.functional.conv1d(given["x.weight"], w[:, :, 0], b, **window)
    expected.backward(torch.from_numpy(dy))
    np.testing.assert_allclose(bound.outputs["y"], expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    for key, slope in layout.unpacked(slopes).items():
        np.testing.assert_allclose(slope, given[key].grad.numpy(), rtol=1e-10, atol=1e-12)
