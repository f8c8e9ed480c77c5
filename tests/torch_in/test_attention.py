"""F.scaled_dot_product_attention with learned masks, padding, causal, and with dropout: value and gradients."""

from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow.graph import FLOAT, Array, Graph, compile_plan, initial_weights, plan_layout
from mpibow.graph.bound import BoundPlan
from mpibow.kernels import NUMPY, find_kernels
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
F = torch.nn.functional


class Attends(torch.nn.Module):
    """Heads with a bias for each pair of places, as Swin, BEiT and T5 have it, and padding that `keep` marks."""

    hidden = float("-inf")

    def __init__(self, bias: tuple[int, ...] | None, causal: bool, dropout: float, padding: bool) -> None:
        super().__init__()
        self.causal, self.dropout, self.padding = causal, dropout, padding
        self.qkv, self.head = torch.nn.Linear(8, 24), torch.nn.Linear(8, 3)
        self.bias = None if bias is None else torch.nn.Parameter(torch.randn(bias))

    def forward(self, x, keep):
        q, k, v = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        mask = self.bias
        if self.padding:
            seen = (keep > 0)[:, None, None, :]
            mask = seen if mask is None else torch.where(seen, mask, self.hidden)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, mask, p, self.causal)
        return self.head(y.transpose(1, 2).flatten(2))


CASES = {
    "all pairs": ((5, 5), False, 0.0, False),
    "by head": ((2, 5, 5), False, 0.0, False),
    "by column": ((1, 1, 1, 5), False, 0.0, False),
    "by row": ((1, 2, 5, 1), False, 0.0, False),
    "one": ((1,), False, 0.0, False),
    "padding": (None, False, 0.0, True),
    "by head, padding": ((2, 5, 5), False, 0.0, True),
    "dropout": (None, False, 0.3, False),
    "dropout, causal": (None, True, 0.3, False),
    "dropout, by head": ((2, 5, 5), False, 0.3, False),
    "dropout, padding": (None, False, 0.3, True),
    "dropout, by head, padding": ((2, 5, 5), False, 0.3, True),
}


def module_of(name: str) -> tuple[Any, tuple[Any, Any]]:
    """It and inputs; the second sample is all padding."""
    torch.manual_seed(0)
    module = Attends(*CASES[name]).double()
    return module, (torch.randn(3, 5, 8).double(), torch.tensor([[1.0] * 5, [0.0] * 5, [1.0, 0, 1, 1, 0]]).double())


def bound_of(name: str, kernels, dtype: str, training: bool = True) -> tuple[Any, BoundPlan, Array, Array]:
    """The module with its inputs, and a plan of it that is bound to these, to its weights and their gradients."""
    module, given = module_of(name)
    net, graph = mb.from_torch(module, given), Graph()
    inputs = [graph.input(key, tuple(array.shape), FLOAT) for key, array in zip(("x", "keep"), given, strict=True)]
    graph.output("y", y := net(*inputs))
    graph.output("loss", mb.mean(y * y, axis=(1, 2)))
    layout = plan_layout(graph)
    plan = compile_plan(graph, layout, kernels, dtype, training=training)
    flat = initial_weights(layout, 1, dtype)
    bound = plan.bind(flat, gradients := np.zeros_like(flat))
    for key, array in zip(("x", "keep"), given, strict=True):
        if key in bound.inputs:
            bound.inputs[key][...] = array.numpy()
    return (module, given), bound, flat, gradients


@pytest.mark.parametrize("machine", ["numpy", "onednn"])
@pytest.mark.parametrize("name", [name for name in CASES if "dropout" not in name])
def test_value_and_gradients(name, machine):
    kernels, dtype, tolerance = NUMPY, "float64", 1e-10
    if machine == "onednn":
        kernels, dtype, tolerance = find_kernels("onednn", "float32", None, True)[0], "float32", 1e-5
    (module, given), bound, _, gradients = bound_of(name, kernels, dtype)
    bound.run()
    expected = module(*given)
    (expected**2).mean((1, 2)).mean().backward()
    np.testing.assert_allclose(bound.outputs["y"], expected.detach(), rtol=tolerance, atol=tolerance)
    found, trained = bound.plan.layout.unpacked(gradients), dict(module.named_parameters())
    assert found.keys() == trained.keys()
    for key, array in found.items():
        np.testing.assert_allclose(array, trained[key].grad, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", [name for name in CASES if "dropout" in name])
def test_dropout(name):
    """Nothing is dropped in evaluation; in training the gradient is the difference quotient of the same draw."""
    (module, given), bound, *_ = bound_of(name, NUMPY, "float64", training=False)
    bound.run()
    np.testing.assert_allclose(bound.outputs["y"], module.eval()(*given).detach(), rtol=1e-10, atol=1e-10)
    _, bound, flat, gradients = bound_of(name, NUMPY, "float64")
    bound.inputs["counter"][...] = np.arange(12).reshape(3, 4)
    bound.run()
    assert np.isfinite(gradients).all()
    if "padding" in name:
        np.testing.assert_allclose(bound.outputs["y"][1], np.broadcast_to(module.head.bias.detach(), (5, 3)))
    slopes, values = gradients.copy(), []
    direction = np.random.default_rng(1).standard_normal(flat.size)
    for step in (1e-6, -2e-6):
        flat += step * direction
        bound.run()
        values.append(float(bound.outputs["loss"].mean()))
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(float(slopes @ direction), rel=1e-6)


@pytest.mark.parametrize("hidden", [-1e30, float(np.finfo("float32").min)])
def test_dropout_of_a_row_that_is_hidden_by_large_numbers(hidden: float):
    module, given = module_of("dropout, by head, padding")
    module.hidden = hidden
    mb.from_torch(module, given)  # it compares: the row is a mean
