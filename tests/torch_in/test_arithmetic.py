"""Functions whose errors a rounding shows, or a subtraction: in float32, beside PyTorch's."""

from importlib import import_module

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ConfigError
from mpibow.graph import Array
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
same = import_module("tests.torch_in.same")
F = torch.nn.functional


class Function(torch.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.forward = function


def computed(function, *inputs) -> Array:
    net = mb.from_torch(Function(function), inputs)
    named = dict(zip(net.inputs, inputs, strict=True))

    def build(graph):
        return net(*(graph.input(x.name, (len(named[x.name]), *x.shape), x.dtype) for x in net.program.inputs))

    return same.computed(build, named, torch.float32)[0][0]


SIZES = torch.logspace(-12, 1, 1000) * torch.tensor([[1.0], [-1.0]])
CURVES = {
    "celu": lambda x: F.celu(x, 0.3),
    "clamp": lambda x: x.clamp(-1e6, 1e6),
    "elu": F.elu,
    "expm1": lambda x: x.expm1(),
    "hardtanh": F.hardtanh,
    "hardtanh, wide": lambda x: F.hardtanh(x, -1e6, 1e6),
    "selu": F.selu,
}


@pytest.mark.parametrize("name", CURVES)
def test_exact_near_0(name: str):
    np.testing.assert_allclose(computed(CURVES[name], SIZES), CURVES[name](SIZES), rtol=2e-6)


class Scaled(torch.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.w, self.function = torch.nn.Parameter(torch.ones(3)), function

    def forward(self, x):
        return self.function(x * self.w)


ENTROPY, NONE = F.binary_cross_entropy, {"reduction": "none"}
EDGES = {
    "binary_cross_entropy, 1": lambda x: ENTROPY(x.sigmoid(), torch.ones_like(x), **NONE),
    "binary_cross_entropy, 0": lambda x: ENTROPY(x.sigmoid(), torch.zeros_like(x), x.detach() + 3, **NONE),
    "binary_cross_entropy, mean": lambda x: ENTROPY(x.sigmoid(), (x > 0).float()),
    "celu": lambda x: F.celu(x, 0.1),
    "selu": F.selu,
    "logsumexp": lambda x: torch.cat([x, torch.full_like(x, torch.inf)]).logsumexp(1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "sort": lambda x: x.sort(descending=True)[0],
    "std": lambda x: x.std(1),
    "topk": lambda x: x.topk(2)[0],
}


ROWS = [[200.0, -200.0, 0.5], [torch.inf, 1.0, -3.0], [1.0, torch.nan, 2.0]]


@pytest.mark.parametrize(
    ("name", "row"),  # PyTorch refuses probabilities that are NaN
    [(name, row) for name in EDGES for row in ROWS[: 2 if name.startswith("binary") else 3]],
)
def test_where_a_float_ends(name: str, row):
    """Values, and gradients, where PyTorch's are finite."""
    module, x = Scaled(EDGES[name]), torch.tensor([row])
    net = mb.from_torch(module, (torch.randn(1, 3),))
    (found,), gradients, _ = same.computed(lambda graph: net(graph.input("x", (1, 3))), {"x": x}, torch.float32)
    y = module(x)
    np.testing.assert_allclose(found, y.detach(), rtol=1e-5)
    if (slope := torch.autograd.grad((y * y).sum(), module.w)[0]).isfinite().all():
        np.testing.assert_allclose(gradients["w"], slope, rtol=1e-4)


IDS, NUMBERS = torch.arange(-2000, 2000).reshape(2, 2000), (torch.arange(-1000, 1000) * 0.1).reshape(2, 1000)
DIVISORS = torch.linspace(-3, 9, 1000).expand(2, 1000).clone()
LARGE = torch.tensor([[2**24 + 1, -(2**25) - 1, 2**26 + 1], [2**30 + 1, -3, 5]])
EXACT = {
    "x / 41, whole": (lambda x: (x / 41).long(), IDS),
    "x / 3": (lambda x: x / 3, NUMBERS),
    "x // 7.5": (lambda x: x // 7.5, IDS),
    "x // 0.1": (lambda x: torch.div(x, 0.1, rounding_mode="floor"), NUMBERS),
    "x / 0.1, to 0": (lambda x: torch.div(x, 0.1, rounding_mode="trunc"), NUMBERS),
    "x // y": (lambda x, y: x // y, NUMBERS, DIVISORS),
    "x // y of zeros": (lambda x, y: torch.div(x, F.relu(y), rounding_mode="floor") + x, NUMBERS, DIVISORS),
    "x % -0.3": (lambda x: x % -0.3, NUMBERS),
    "x % y": (lambda x, y: x % y, NUMBERS, DIVISORS),
    "abs": (lambda x: x.abs(), LARGE),
    "cat": (lambda x: torch.cat([x, x > 0], 1), LARGE),
    "index_add": (lambda x: x.index_add(1, torch.tensor([1, 0]), x[:, :2], alpha=-1), LARGE),
    "pad": (lambda x: F.pad(x, (1, 0), value=2**24 + 1), LARGE),
    "power": (lambda x: (x % 1200) ** 3, LARGE),
    "product": (lambda x: (x % 200).prod(1), LARGE),
    "relu": (lambda x: x.relu(), LARGE),
    "scatter": (lambda x: x.scatter(1, torch.tensor([[1], [0]]), 2**24 + 1), LARGE),
    "scatter, tensor": (lambda x: x.scatter(1, torch.tensor([[1], [0]]), x[:, 2:]), LARGE),
    "scatter_add": (lambda x: x.scatter_add(1, torch.tensor([[1, 1], [0, 1]]), x[:, 1:]), LARGE),
    "tril": (lambda x: x.tril(), LARGE),
}


@pytest.mark.parametrize("name", EXACT)
def test_equal(name: str):
    function, *inputs = EXACT[name]
    np.testing.assert_array_equal(computed(function, *inputs), function(*inputs))


def test_0_and_1_for_bools():
    net = mb.from_torch(Function(lambda x, mask: x.masked_fill(~mask, 0)), (NUMBERS, NUMBERS > 0))

    def build(graph):
        return net(graph.input("x", NUMBERS.shape), graph.input("mask", NUMBERS.shape, "int32"))

    found = same.computed(build, {"x": NUMBERS, "mask": (NUMBERS > 0).int()}, torch.float32)[0][0]
    np.testing.assert_array_equal(found, NUMBERS.relu())


def test_integers_are_not_rounded_to_floats():
    with pytest.raises(ConfigError, match=r"matmul in .* not computed of integers here; cast them to floats"):
        computed(lambda x: x @ x.T, LARGE)
