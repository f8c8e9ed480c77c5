"""Modules as they come: wrappers, types, shapes, outputs, operators in place. Each is right, or refused by its name."""

import inspect
import subprocess
import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow.aten import OPERATORS
from mpibow.aten.agreement import refuse_difference
from mpibow.errors import ConfigError
from mpibow.graph import Graph
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
read = import_module("tests.torch_in.read")
nn = torch.nn
functional = torch.nn.functional


def batch(*shape: int, dtype=torch.float32):
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape)).to(dtype)


@pytest.mark.parametrize("name", read.RIGHT)
def test_right(name):
    """from_torch itself compares values and gradients."""
    make, *shapes = read.RIGHT[name]
    module = make()
    dtype = next((each.dtype for each in module.parameters()), torch.float32)
    mb.from_torch(module, tuple(batch(*shape, dtype=dtype) for shape in shapes))


@pytest.mark.parametrize("name", read.REFUSED)
def test_refused_by_name(name):
    make, shape, told = read.REFUSED[name]
    with pytest.raises(ConfigError, match=f"(?s)from_torch: .*{told}"):
        mb.from_torch(make(), (batch(*shape),))


def test_operators_of_several_results_that_mpibow_lacks_are_named_without_a_word_more():
    lines = subprocess.run(
        [sys.executable, "-m", "tests.torch_in.read"], capture_output=True, text=True, check=True, timeout=300
    )
    assert lines.stderr == ""
    assert [line.split()[0] for line in lines.stdout.splitlines()] == [*read.SEVERAL]


def in_place() -> list[Any]:
    """ATen's operators that write into their first argument, of which mpibow has the other form."""
    aten = torch.ops.aten
    packets = [getattr(aten, name) for name in dir(aten) if name.endswith("_") and name[:-1] in OPERATORS]
    overloads = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    return [each for each in overloads if str(each._schema.arguments[0].type) == "Tensor"]


@pytest.mark.parametrize("target", in_place(), ids=str)
def test_operators_in_place_have_the_arguments_of_the_others(target):
    anew = import_module("mpibow.aten.decomposition").anew
    name = target._schema.name.removeprefix("aten::").rstrip("_")
    parameters = inspect.signature(OPERATORS[name]).parameters
    names = [each.name for each in anew(target)._schema.arguments]
    left = [each for each in names if each not in parameters and each not in ("generator", "memory_format")]
    assert not left or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


class Bare(nn.Module):
    """Weights that no layer owns: a scale of each feature, as layer scale has it, and a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.matrix = nn.Parameter(torch.ones(4)), nn.Parameter(torch.eye(4))

    def forward(self, x):
        return (x * self.scale) @ self.matrix


def test_bare_weights_decay_as_those_of_layers_do():
    graph = Graph()
    mb.from_torch(Bare(), (batch(2, 4),))(graph.input("x", (2, 4)))
    decays = {node.full(key): each.decay for node in graph.nodes for key, each in node.weights.items()}
    assert decays == {"scale": False, "matrix": True}


def test_weights_without_axes_train_and_come_back(tmp_path):
    torch.manual_seed(0)
    x, y = np.random.default_rng(0).standard_normal((32, 6)).astype("f4"), np.arange(32, dtype=np.int32) % 3
    settings = {"loss": mb.cross_entropy, "batch_size": 4, "learners": 2, "out": str(tmp_path)}
    net = mb.from_torch(read.Scaled(), (torch.zeros(2, 6),))
    fitted = mb.fit(net, (x, y), validation=0.25, stop={"epochs": 1}, name="a", **settings)
    assert fitted.weights["logit_scale"].shape == ()
    assert fitted.weights["logit_scale"] != net.weights["logit_scale"]
    loaded = mb.load(fitted.summary.run)
    back = loaded.to_torch(read.Scaled()).eval()
    with torch.no_grad():
        wanted = back(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(loaded.predict(x), wanted, rtol=1e-4, atol=1e-5)
    more = mb.fit(net, (x, y), validation=0.25, stop={"epochs": 2}, resume=fitted.summary.run, **settings)
    assert more.weights["logit_scale"] != fitted.weights["logit_scale"]
    tuned = mb.fit(net, (x, y), weights=fitted.summary.run, stop={"epochs": 1}, update={"lr": 1e-20}, **settings)
    assert tuned.weights["logit_scale"] == more.weights["logit_scale"]


def test_the_trained_module_of_computed_weights_is_a_copy(tmp_path):
    with pytest.warns(FutureWarning):
        module = nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 3)))
    data = batch(8, 6).numpy(), np.arange(8, dtype=np.int32) % 3
    fitted = mb.fit(
        mb.from_torch(module, (torch.zeros(2, 6),)), data, loss=mb.cross_entropy, batch_size=4, learners=1,
        stop={"epochs": 1}, out=str(tmp_path),
    )  # fmt: skip
    with torch.no_grad():
        wanted = fitted.to_torch().eval()(torch.from_numpy(data[0])).numpy()
    np.testing.assert_allclose(fitted.predict(data[0]), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [read.Crooked, read.Hiding])
def test_another_gradient_than_pytorchs_is_refused(make):
    with pytest.raises(ConfigError, match=r" has another gradient of h\.weight than in PyTorch: they differ by"):
        mb.from_torch(make(), (batch(4, 8),))


@pytest.mark.parametrize("large", [-1e30, -1.7e308, 3e3])
def test_a_large_number_does_not_hide_others(large: float):
    ours, theirs = {"y": np.array([large, 1.1, 0])}, {"y": np.array([large, 1.0, 0])}
    with pytest.raises(ConfigError, match=r"they differ by 0\.1"):
        refuse_difference("", ours, "", theirs, "", 1e-4)
    refuse_difference("", {"y": theirs["y"] + 1e-5}, "", theirs, "", 1e-4)


@pytest.mark.parametrize("make", [read.NoNumber, read.NoGradient])
def test_nan_does_not_pass(make):
    with pytest.raises(ConfigError, match=r"PyTorch's own outputs or gradients of .* are NaN"):
        mb.from_torch(make(), (batch(4, 8),))


def test_short_of_memory_is_said(monkeypatch):
    module = import_module("mpibow.pytorch")
    monkeypatch.setattr(module, "memory_left", lambda: 1000)
    with pytest.warns(UserWarning, match="Crooked was not compared with PyTorch, which needs 0 GiB"):
        mb.from_torch(read.Crooked(), (batch(4, 8),))


class Of(torch.nn.Module):
    """A function of its parts and an input."""

    def __init__(self, function, **parts) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *given):
        return self.function(self, *given)


def written_between_uses(module, x):
    mask = torch.zeros(x.shape[0], 6)
    first = module.h(x) + mask
    mask[:, 0] = 1
    return first * 2 + x * mask


@pytest.mark.parametrize(
    "function",
    [
        written_between_uses,
        lambda module, x: torch.max(module.h(x), torch.tensor(0.0)).sqrt(),
        lambda module, x: torch.nn.functional.lp_pool1d(module.h(x - x)[:, None], 2.0, 2),
    ],
    ids=["a mask is written between two uses", "a root of a maximum of 0", "a root of zeros"],
)
def test_it_is_read_as_pytorch_computes_it(function):
    mb.from_torch(Of(function, h=torch.nn.Linear(6, 6, bias=False)), (torch.randn(4, 6),))  # compares gradients


@pytest.mark.parametrize(
    "function",
    [
        lambda module, x: module.h(x) * (torch.arange(x.shape[0]) < 32)[:, None],
        lambda module, x: module.h(x) / min(x.shape[0], 100),
    ],
)
def test_what_changes_beyond_some_samples_is_refused(function):
    with pytest.raises(ConfigError, match="a value depends on the batch size in another way than by samples"):
        mb.from_torch(Of(function, h=torch.nn.Linear(6, 2)), (torch.randn(4, 6),))


def test_a_module_that_recomputes_its_parts_stays_as_it_was():
    def recomputed(module, x):
        return torch.utils.checkpoint.checkpoint(module.h, x, use_reentrant=False)

    module = Of(recomputed, h=torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6)))
    mb.from_torch(module, (torch.randn(4, 6),))
    assert module.h[1].num_batches_tracked == 0
    assert not module.h[1].running_mean.any()


def test_a_buffer_that_is_expanded():
    module = Of(lambda module, x: module.h(x + module.h.rows), h=torch.nn.Linear(6, 2))
    module.h.register_buffer("rows", torch.arange(6.0).expand(1, 3, 6)[:, 1])
    module.h.register_buffer("unused", torch.arange(6.0).expand(3, 6))
    mb.from_torch(module, (torch.randn(4, 6),))


def test_the_mean_over_labels_that_count_is_of_the_batch_in_evaluation_too():
    def losses(module, x, labels):
        y = module.h(module.b(x)).reshape(-1, 3, 2)
        return {"ce": torch.nn.functional.cross_entropy(y, labels, ignore_index=0) * torch.ones_like(x[:, 0])}

    module = Of(losses, h=torch.nn.Linear(6, 6), b=torch.nn.BatchNorm1d(6))
    labels = torch.tensor([[1, 2], [0, 1], [1, 0], [2, 2]])
    mb.from_torch(module, (torch.randn(4, 6), labels))  # compares evaluation where there are statistics
