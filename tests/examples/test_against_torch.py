"""The nets of examples/ beside PyTorch's in float64: logits, losses and gradients."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import numpy as np
import pytest

from mpibow.data import Array
from mpibow.graph import Kernels, Layout, compile_plan, initial_weights, plan_layout, plan_statistics
from mpibow.kernels.numpy import OPERATORS
from mpibow.models.objective import PREDICTION
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
nets = import_module("tests.examples.torch_nets")  # imports torch itself
cases = import_module("tests.examples.cases")  # runs the examples, some of which import SciPy
F = torch.nn.functional

TOLERANCE = 1e-10  # of the largest number of an array; float64
BLOCKS = (r"^block(\d+)", r"blocks.\1")
ATTENTION = [(r"^block(\d+)\.(qkv|out)", r"blocks.\1.attention.\2"), BLOCKS, ("positions.weight", "positions")]
CONV = r"(conv\d?|shortcut)"
NORMED = [BLOCKS, (rf"{CONV}_norm\.", r"\1.norm."), (rf"{CONV}\.weight", r"\1.conv.weight")]
UP_DOWN = [(r"^up(\d+)\.larger", r"larger.\1"), (r"^(up|down)(\d+)", r"\1.\2")]


@dataclass(frozen=True)
class Theirs:
    """PyTorch's net, its losses, logits and target -> their mean over the batch, and its names by patterns of ours."""

    make: Callable
    losses: Callable = F.cross_entropy
    names: Sequence[tuple[str, str]] = ()

    def renamed(self, name: str) -> str:
        for pattern, replacement in self.names:
            name = re.sub(pattern, replacement, name)
        return name


def by_position(logits, target):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


THEIRS = {
    "char_gpt": Theirs(partial(nets.Gpt, 7, 128, 64, 4, 2), by_position, names=ATTENTION),
    "tiny_vit": Theirs(partial(nets.Vit, 1, 8, 10, 2, 32, 4, 2), names=ATTENTION),
    "lstm_classifier": Theirs(partial(nets.LstmClassifier, 256, 48, 2, 4)),
    "unet": Theirs(partial(nets.Unet, 1, 3, 8, 2), names=UP_DOWN),
    "squeeze_excite": Theirs(partial(nets.SqueezeExcite, 3, 10, (16, 32)), names=NORMED),
    "table_mlp": Theirs(partial(nets.Mlp, 10, 64, 2), F.mse_loss),
}


def close(got, expected, name: str) -> None:
    expected = expected.detach().numpy()
    scale = max(float(np.abs(expected).max()), 1e-12)
    off = np.abs(got.reshape(expected.shape) - expected).max() / scale
    assert off <= TOLERANCE, f"{name} is off by {off:g}"


def theirs_with(theirs: Theirs, layout: Layout, weights: Array) -> tuple:
    """PyTorch's net with our weights, and its parameters by our names: all of them."""
    net = theirs.make().double().train()
    parameters = dict(net.named_parameters())
    named = {name: parameters.pop(theirs.renamed(name)) for name in layout.views(weights)}
    assert not parameters
    with torch.no_grad():
        for name, array in layout.views(weights).items():
            assert named[name].shape == array.shape
            named[name].copy_(torch.from_numpy(array))
    return net, named


def loss_of(name: str, net) -> tuple:
    case = cases.CASES[name]
    first, target = (torch.from_numpy(np.ascontiguousarray(array)) for array in (case.first, case.target))
    target = target.double() if target.is_floating_point() else target.long()
    logits = net(first.double() if first.is_floating_point() else first.long())
    return logits, THEIRS[name].losses(logits, target)


@pytest.mark.parametrize("name", cases.CASES)
def test_logits_loss_and_gradients(name):
    case, generator = cases.CASES[name], np.random.default_rng(cases.SEED)
    graph = case.build(case.batch, True)
    layout, running = plan_layout(graph), plan_statistics(graph)
    weights, gradients = initial_weights(layout, 1, "float64"), np.zeros(layout.size)
    weights += 0.05 * generator.standard_normal(layout.size)  # no bias stays 0
    plan = compile_plan(graph, layout, Kernels(OPERATORS), "float64", training=True)
    bound = plan.bind(weights, gradients, initial_weights(running, 0, "float64"))
    for key, array in case.inputs.items():
        bound.inputs[key][...] = array
    bound.run()
    net, named = theirs_with(THEIRS[name], layout, weights)
    logits, loss = loss_of(name, net)
    loss.backward()
    close(bound.outputs["logits" if case.loss is None else PREDICTION], logits, "logits")
    close(bound.outputs["loss"].mean(), loss, "loss")
    for key, array in layout.views(gradients).items():
        close(array, named[key].grad, f"gradient of {key}")
