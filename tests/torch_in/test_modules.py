"""Modules as torchvision, timm and nanoGPT write them: the same logits, trained on ranks and learners, given back."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow.graph import FLOAT, Graph, Kernels
from mpibow.kernels import find_kernels
from tests.oracle import pytorch
from tests.outcome import outcome
from tests.torch_in.by_hand import resnet18

pytestmark = pytest.mark.torch
torch = pytorch()
modules = import_module("tests.torch_in.modules")  # imports torch itself
F = torch.nn.functional

TOLERANCE, LOOSE = 1e-10, 1e-4  # of the largest number, in float64, and by oneDNN in float32
ADAMW = {"name": "adamw", "lr": 1e-3, "weight_decay": 0.05, "eps": 1e-5, "decay_biases": True}


def inputs(name: str, count: int, seed: int = 1) -> list[Any]:
    torch.manual_seed(seed)
    return [each.double() if each.is_floating_point() else each for each in modules.CASES[name].inputs(count)]


@cache
def net_of(name: str):
    """The module with its net, made of a batch of one."""
    module = modules.made(name)
    return module, mb.from_torch(module, tuple(inputs(name, 1)))


def graph_of(net, given: Sequence[Any]) -> Graph:
    graph = Graph()
    tensors = [
        graph.input(each.name, tuple(array.shape), FLOAT if array.is_floating_point() else "int32")
        for each, array in zip(net.program.inputs, given, strict=True)
    ]
    graph.output("y", net(*tensors))
    return graph


def predicted(net, given: Sequence[Any], kernels: Kernels, dtype: str):
    inputs = {each.name: array.numpy() for each, array in zip(net.program.inputs, given, strict=True)}
    return outcome(graph_of(net, given), inputs, kernels, dtype, training=False)[1]["y"]


def off(got, module, given: Sequence[Any]) -> float:
    with torch.no_grad():
        wanted = module.eval()(*given).numpy()
    module.train()
    assert got.shape == wanted.shape
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("name", modules.CASES)
@pytest.mark.parametrize(
    ("device", "precision", "bound"), [("numpy", "float64", TOLERANCE), ("onednn", "float32", LOOSE)]
)
def test_logits(name, device, precision, bound):
    kernels = find_kernels(device, precision, None, True)[0]
    module, net = net_of(name)
    given = inputs(name, 5)
    assert off(predicted(net, given, kernels, precision), module, given) <= bound


def test_weights_have_the_names_of_the_state_dict():
    module, net = net_of("resnet18")
    state = {name for name in module.state_dict() if not name.endswith("num_batches_tracked")}
    assert set(net.weights) == state
    graph = graph_of(net, inputs("resnet18", 2))
    statistics = {node.full(key) for node in graph.nodes for key in node.statistics}
    assert {*graph.weight_names, *statistics} == state


def kernels_run(net, kernels: Kernels) -> list[tuple[str, Any, Any]]:
    """What a training plan of logits computes in order: operators, fused as the library has them, and their shapes."""
    graph = Graph()
    graph.output("y", net(graph.input("image", (4, 3, 16, 16))))
    graph = kernels.fuse(graph, True)
    return [
        (type(node.op).__name__, [graph.tensors[name].shape for name in node.inputs], graph.tensors[node.name].shape)
        for node in graph.nodes
        if not node.op.is_view(True)
    ]


def test_the_plan_is_that_of_the_net_by_hand():
    kernels = find_kernels("onednn", "float32", None, True)[0]
    found = kernels_run(net_of("resnet18")[1], kernels)
    assert found == kernels_run(lambda image: resnet18(image, width=8), kernels)
    assert [name for name, *_ in found].count("NormAddRelu") == 17


def trained_by(name: str, steps: int, module, given: Sequence[Any], target) -> None:
    """PyTorch's own loop, on one batch."""
    decayed = [{"params": list(module.parameters()), "weight_decay": ADAMW["weight_decay"]}]
    optimiser = torch.optim.AdamW(decayed, lr=ADAMW["lr"], eps=ADAMW["eps"])
    for _ in range(steps):
        optimiser.zero_grad()
        logits = module(*given)
        axis = logits.ndim - 1 if name == "gpt" else 1
        F.cross_entropy(logits.movedim(axis, 1), target).backward()
        optimiser.step()


@pytest.mark.parametrize("name", ["unet", "gpt"])
def test_twenty_steps_as_in_pytorch(name, tmp_path):
    steps, count, case = 20, 3, modules.CASES[name]
    module, given = modules.made(name), inputs(name, count)
    net = mb.from_torch(module, tuple(given))
    with torch.no_grad():
        logits = module(*given)
    shape = (count, *logits.shape[2:]) if name == "unet" else logits.shape[:-1]
    target = torch.randint(case.classes, tuple(shape))
    module = modules.made(name)  # whose statistics have not moved
    fitted = mb.fit(
        net, (given[0].numpy(), target.numpy().astype(np.int32)),
        loss=lambda y, label: mb.cross_entropy(y, label, axis=2 if name == "gpt" else 1),
        batch_size=count, learners=1, update=ADAMW, stop={"epochs": steps}, device="numpy", precision="float64",
        out=str(tmp_path),
    )  # fmt: skip
    trained_by(name, steps, module.train(), given, target)
    state = module.state_dict()
    for key, array in fitted.weights.items():
        wanted = state[key].numpy()
        assert np.abs(array - wanted).max() <= TOLERANCE * max(np.abs(wanted).max(), 1e-3), key
    back = fitted.to_torch()
    assert off(fitted.predict(given[0].numpy()), back, given) <= TOLERANCE
