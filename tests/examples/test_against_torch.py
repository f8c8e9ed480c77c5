"""The nets of examples/ beside PyTorch's in float64: logits, losses, gradients, and a step of AdamW by `fit`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from examples import char_gpt, lstm_classifier, squeeze_excite, table_mlp, tiny_vit, unet
from mpibow.data.dataset import Array
from mpibow.graph.graph import Graph
from mpibow.graph.kernel import Kernels
from mpibow.graph.layout import Layout, initial_weights, plan_layout, plan_statistics
from mpibow.graph.plan import compile_plan
from mpibow.kernels.numpy import OPERATORS
from mpibow.models.classifier import classifier
from mpibow.models.objective import objective
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch: Any = pytorch()
nets = import_module("tests.examples.torch_nets")  # imports torch itself
F = torch.nn.functional

SEED, TOLERANCE = 3, 1e-10  # of the largest number of an array; float64
# A key's bias has a gradient of rounding errors alone: Adam's first step, g / (|g| + eps), would enlarge them by 1e8.
ADAMW = {"name": "adamw", "lr": 0.01, "weight_decay": 0.1, "eps": 1e-5}
BLOCKS = (r"^block(\d+)", r"blocks.\1")
ATTENTION = [(r"^block(\d+)\.(qkv|out)", r"blocks.\1.attention.\2"), BLOCKS, ("positions.weight", "positions")]
CONV = r"(conv\d?|shortcut)"
NORMED = [BLOCKS, (rf"{CONV}_norm\.", r"\1.norm."), (rf"{CONV}\.weight", r"\1.conv.weight")]
UP_DOWN = [(r"^up(\d+)\.larger", r"larger.\1"), (r"^(up|down)(\d+)", r"\1.\2")]


@dataclass(frozen=True)
class Case:
    """An example's net, what it is trained on, PyTorch's net with its losses, and its names by patterns of ours.

    `inputs` are by name for a net that gives losses; else images, or rows, and their classes.
    """

    net: Callable[..., Any]
    inputs: dict[str, Array]
    theirs: Callable[[], Any]
    losses: Callable[..., Any]  # logits, target -> their mean over the batch
    names: Sequence[tuple[str, str]] = ()
    classes: bool = False

    def build(self, batch: int, training: bool) -> Graph:
        image = next(iter(self.inputs.values()))
        if self.classes:
            return classifier(self.net, image.shape[1:], str(image.dtype))(batch, training)
        kinds = {name: (array.shape[1:], array.dtype) for name, array in self.inputs.items()}
        graph = objective(self.net, kinds)(batch, training)
        graph.output("logits", graph.tensors["head"])
        return graph

    def renamed(self, name: str) -> str:
        for pattern, replacement in self.names:
            name = re.sub(pattern, replacement, name)
        return name


def whole(count: int, *shape: int) -> Array:
    """Numbers below `count`."""
    return np.random.default_rng(SEED).integers(count, size=shape).astype(np.int32)


def real(*shape: int) -> Array:
    return np.random.default_rng(SEED + 1).standard_normal(shape).astype(np.float32)


def by_position(logits: Any, target: Any) -> Any:
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


CASES = {
    "char_gpt": Case(
        char_gpt.net, {"text": whole(128, 3, 7), "following": whole(128, 3, 7)[::-1]},
        partial(nets.Gpt, 7, 128, 64, 4, 2), by_position, ATTENTION,
    ),
    "tiny_vit": Case(
        tiny_vit.net, {"image": real(4, 1, 8, 8), "label": whole(10, 4)},
        partial(nets.Vit, 1, 8, 10, 2, 32, 4, 2), F.cross_entropy, ATTENTION, classes=True,
    ),
    "lstm_classifier": Case(
        partial(lstm_classifier.net, classes=4), {"image": whole(256, 4, 9).astype(np.uint8), "label": whole(4, 4)},
        partial(nets.LstmClassifier, 256, 48, 2, 4), F.cross_entropy, classes=True,
    ),
    "unet": Case(
        unet.net, {"image": real(3, 1, 16, 12), "mask": whole(3, 3, 16, 12)},
        partial(nets.Unet, 1, 3, 8, 2), F.cross_entropy, UP_DOWN,
    ),
    "squeeze_excite": Case(
        squeeze_excite.net, {"image": real(5, 3, 8, 6), "label": whole(10, 5)},
        partial(nets.SqueezeExcite, 3, 10, (16, 32)), F.cross_entropy, NORMED, classes=True,
    ),
    "table_mlp": Case(
        table_mlp.net, {"features": real(6, 10), "target": real(6)}, partial(nets.Mlp, 10, 64, 2), F.mse_loss
    ),
}  # fmt: skip


def close(got: Any, expected: Any, name: str) -> None:
    expected = expected.detach().numpy()
    scale = max(float(np.abs(expected).max()), 1e-12)
    off = np.abs(got.reshape(expected.shape) - expected).max() / scale
    assert off <= TOLERANCE, f"{name} is off by {off:g}"


def theirs_with(case: Case, layout: Layout, weights: Array) -> tuple[Any, dict[str, Any]]:
    """PyTorch's net with our weights, and its parameters by our names: all of them."""
    net = case.theirs().double().train()
    parameters = dict(net.named_parameters())
    named = {name: parameters.pop(case.renamed(name)) for name in layout.views(weights)}
    assert not parameters
    with torch.no_grad():
        for name, array in layout.views(weights).items():
            assert named[name].shape == array.shape
            named[name].copy_(torch.from_numpy(array))
    return net, named


def loss_of(case: Case, net: Any) -> tuple[Any, Any]:
    first, target = (torch.from_numpy(np.ascontiguousarray(array)) for array in case.inputs.values())
    target = target.double() if target.is_floating_point() else target.long()
    logits = net(first.double() if first.is_floating_point() else first.long())
    return logits, case.losses(logits, target)


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_and_gradients(name: str) -> None:
    case, generator = CASES[name], np.random.default_rng(SEED)
    batch = len(next(iter(case.inputs.values())))
    graph = case.build(batch, True)
    layout, running = plan_layout(graph), plan_statistics(graph)
    weights, gradients = initial_weights(layout, 1, "float64"), np.zeros(layout.size)
    weights += 0.05 * generator.standard_normal(layout.size)  # no bias stays 0
    plan = compile_plan(graph, layout, Kernels(OPERATORS), "float64", training=True)
    bound = plan.bind(weights, gradients, initial_weights(running, 0, "float64"))
    for key, array in case.inputs.items():
        bound.inputs[key][...] = array
    bound.run()
    net, named = theirs_with(case, layout, weights)
    logits, loss = loss_of(case, net)
    loss.backward()
    close(bound.outputs["logits"], logits, "logits")
    close(bound.outputs["loss"].mean(), loss, "loss")
    for key, array in layout.views(gradients).items():
        close(array, named[key].grad, f"gradient of {key}")


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_adamw(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    batch = len(next(iter(case.inputs.values())))
    data: Any = tuple(case.inputs.values()) if case.classes else case.inputs
    fitted = mb.fit(
        case.net, data, batch_size=batch, learners=1, update=ADAMW, stop={"iterations": 1}, seed=SEED, device="numpy",
        precision="float64", normalise="none", out=str(tmp_path),
    )  # fmt: skip
    layout = plan_layout(case.build(batch, True))
    net, named = theirs_with(case, layout, initial_weights(layout, SEED, "float64"))
    kept = {key: parameter.detach().clone() for key, parameter in named.items()}
    decay = {span.name: ADAMW["weight_decay"] if span.weight.decay else 0.0 for span in layout.spans}
    groups = [{"params": [parameter], "weight_decay": decay[key]} for key, parameter in named.items()]
    optimiser = torch.optim.AdamW(groups, lr=ADAMW["lr"], eps=ADAMW["eps"])
    loss_of(case, net)[1].backward()
    optimiser.step()
    for key, parameter in named.items():
        assert not torch.equal(parameter, kept[key])
        close(fitted.weights[key], parameter, key)


def test_every_net_is_here() -> None:
    own = {"own_operator", "own_step"}  # whose nets are of dense layers
    assert set(CASES) == {path.stem for path in Path(char_gpt.__file__).parent.glob("*.py")} - own
