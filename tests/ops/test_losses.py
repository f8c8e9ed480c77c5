"""The losses of PyTorch's names against PyTorch's in float64: the batch's mean, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph.graph import Graph, Tensor
from mpibow.graph.layout import initial_weights, plan_layout
from mpibow.graph.plan import compile_plan
from mpibow.kernels import NUMPY
from tests.oracle import pytorch

RANDOM = np.random.default_rng(4)
LABELS = RANDOM.integers(0, 3, (4, 2, 5)).astype(np.int32)


def run(loss: Callable[[Tensor, Tensor], Tensor], x: Any, target: Any) -> tuple[float, Any]:
    """The mean over the batch, and its gradient by x."""
    graph = Graph()
    kind = "float" if target.dtype.kind == "f" else target.dtype.name
    y = loss(mb.parameter(x.shape, initial=lambda *_: x), graph.input("target", target.shape, kind))
    assert y.shape == x.shape[:1]
    graph.output("loss", y)
    layout = plan_layout(graph)
    flat = initial_weights(layout, 0, "float64")
    bound = compile_plan(graph, layout, NUMPY, "float64", training=True).bind(flat, gradients := np.zeros_like(flat))
    bound.inputs["target"][...] = target
    bound.run()
    return float(bound.outputs["loss"].mean()), layout.unpacked(gradients)["parameter1.weight"]


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 3, 2)])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_it_is_pytorchs(name: str, shape: tuple[int, ...]) -> None:
    torch: Any = pytorch()
    x, target = RANDOM.standard_normal(shape), RANDOM.uniform(size=shape)
    close(torch, run(getattr(mb, name), x, target), getattr(torch.nn.functional, name), x, torch.from_numpy(target))


@pytest.mark.torch
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("axis", [1, -1])
def test_cross_entropy_is_pytorchs(axis: int, smoothing: float) -> None:
    torch: Any = pytorch()
    x = RANDOM.standard_normal((4, 2, 5, 3) if axis == -1 else (4, 3, 2, 5))
    found = run(lambda x, label: mb.cross_entropy(x, label, axis=axis, label_smoothing=smoothing), x, LABELS)

    def oracle(x: Any, label: Any) -> Any:
        x = x.movedim(axis, 1)
        return torch.nn.functional.cross_entropy(x, label.long(), label_smoothing=smoothing)

    close(torch, found, oracle, x, torch.from_numpy(LABELS))


def close(torch: Any, found: tuple[float, Any], oracle: Callable[..., Any], x: Any, target: Any) -> None:
    w = torch.from_numpy(x.copy()).requires_grad_()
    expected = oracle(w, target)
    expected.backward()
    np.testing.assert_allclose(found[0], expected.item(), rtol=1e-10)
    np.testing.assert_allclose(found[1], w.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_what_is_ignored_has_no_loss_and_no_gradient() -> None:
    label = LABELS.copy()
    label[1], label[2, 0] = -100, -100
    x = RANDOM.standard_normal((4, 3, 2, 5))
    loss, slope = run(mb.cross_entropy, x, label)
    assert not slope[1].any()
    assert not slope[2, :, 0].any()
    assert slope[2, :, 1].all()
    whole = np.log(np.exp(x).sum(1)) - np.take_along_axis(x, np.maximum(label, 0)[:, None], 1)[:, 0]
    assert loss == pytest.approx((whole * (label >= 0)).sum() / label.size)


def test_labels_of_another_shape() -> None:
    graph = Graph()
    x, label = graph.input("x", (4, 3, 2)), graph.input("label", (4, 3), "int32")
    with pytest.raises(ShapeError) as error:
        mb.cross_entropy(x, label)
    assert str(error.value) == (
        "cross_entropy of x (4, 3, 2), label (4, 3): labels must have the logits' shape but for axis 1, the classes, "
        "which is not the batch"
    )
