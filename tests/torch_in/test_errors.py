"""Modules that cannot become nets, and weights that do not fit: each is named, with its place and what to do."""

import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ConfigError
from mpibow.graph import Graph
from mpibow.pytorch import into_torch
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
modules = import_module("tests.torch_in.modules")
refused = import_module("tests.torch_in.refused")
nn = torch.nn


def packed(x):
    sequences = nn.utils.rnn.pack_padded_sequence(x, torch.full(x.shape[:1], 4), True)
    return nn.utils.rnn.pad_packed_sequence(sequences, True)[0] * 2


def of(function) -> Callable[[], Any]:
    return lambda: refused.Function(function)


def test_what_mpibow_lacks_is_named_with_its_place():
    with pytest.raises(ConfigError) as raised:
        mb.from_torch(modules.Mixer(), (torch.zeros(2, 4, 6),))
    first, one, other, remedy = str(raised.value).splitlines()
    assert first == "from_torch: Mixer uses operators that mpibow lacks:"
    place = r"in layers\.1 \(Spectral\), \S*modules\.py:\d+: return torch\.fft\.fft\(x\)\.real"
    assert re.fullmatch(rf"  fft_fft {place}", one)
    assert re.fullmatch(rf"  real {place}", other)
    assert remedy.startswith("replace them in the module by others (docs/pytorch.md has the list)")


@pytest.mark.parametrize(
    ("make", "shape", "told"),
    [
        (lambda: nn.ConvTranspose3d(2, 2, 1), (2, 3, 3, 3), "lacks:\n  conv_transpose3d in ConvTranspose3d"),
        (lambda: nn.MaxPool2d(2, dilation=2, ceil_mode=True), (3, 8, 8), "max_pool2d in .*windows with dilation"),
        (of(lambda x, _: x.mode(1)[0]), (4,), "lacks:\n  mode in Function"),
        (of(lambda x, _: x if x.sum() > 0 else -x), (4,), "torch.export cannot read Function: "),
        (of(lambda x, _: x.view(2, 4) * 2), (4,), r"cannot read Function: .*test_errors.py:.*any batch size"),
        (of(lambda x, _: torch.take(x, (x * 0 + 99).long())), (4,), "fails in PyTorch for example_inputs: .*99"),
        (of(lambda x, _: packed(x)), (4, 3), "cannot read Function: .*packed sequences need .*total_length"),
        (of(refused.written), (4,), "slice_scatter in .*a part with a step"),
        (of(lambda x, _: x + torch.randn(4)), (4,), "lacks:\n  randn in Function"),
        (of(lambda x, _: (x, torch.ones(3))), (4,), "an output of Function depends on no input"),
        (
            of(lambda x, training: x * 2 if training else x),
            (4,),
            "another output in evaluation",
        ),
        (
            of(lambda x, training: (x, x) if training else x),
            (4,),
            "gives 1 outputs in evaluation and 2 in training",
        ),
    ],
)
def test_refused(make: Callable[[], Any], shape, told):
    with pytest.raises(ConfigError, match=f"(?s)from_torch: .*{told}"):
        mb.from_torch(make(), (torch.randn(2, *shape),))


@pytest.mark.parametrize(
    ("module", "inputs", "told"),
    [
        ("resnet18", (torch.zeros(1, 2),), "module must be a torch.nn.Module, got str"),
        (nn.Linear(2, 2), torch.zeros(1, 2), "must be a tuple of tensors or tensors by name, got Tensor"),
        (nn.Linear(2, 2), (torch.zeros(1, 2), 3), "must be tensors, got int"),
        (nn.Linear(2, 2), (torch.zeros(()),), r"one batch size n, got \(\)"),
        (nn.Bilinear(2, 2, 2), (torch.zeros(3, 2), torch.zeros(4, 2)), r"got \(3, 2\), \(4, 2\)"),
    ],
)
def test_arguments(module, inputs, told):
    with pytest.raises(ConfigError, match=told):
        mb.from_torch(module, inputs)


def test_other_shapes_than_the_examples():
    net = mb.from_torch(nn.Conv2d(3, 4, 3), (torch.zeros(1, 3, 8, 8),))
    with pytest.raises(mb.MpibowError, match=r"takes input \(n, 3, 8, 8\) as in example_inputs, got x \(2, 3, 9, 9\)"):
        net(Graph().input("x", (2, 3, 9, 9)))


def test_a_net_is_applied_once():
    net, x = mb.from_torch(nn.Linear(3, 3), (torch.zeros(1, 3),)), Graph().input("x", (2, 3))
    with pytest.raises(ConfigError, match=r"weight: the net has weights of that name"):
        net(net(x))


def test_the_module_stays_as_it_is():
    module = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Dropout(0.5)).eval()
    module[1].train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    mb.from_torch(module, (torch.randn(1, 1, 4, 4),))
    assert [part.training for part in module.modules()] == [False, False, True, False]
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_parts_in_evaluation_mode_stay_so():
    module = nn.Sequential(nn.BatchNorm2d(2), nn.Dropout(0.5)).train()
    module[0].eval()
    graph, net = Graph(), mb.from_torch(module, (torch.randn(2, 2, 4, 4),))
    net(graph.input("x", (2, 2, 4, 4)))
    assert [(node.op.kind, getattr(node.op, "frozen", None)) for node in graph.nodes] == [
        ("batch_norm", True),
        ("dropout", None),
    ]


@pytest.mark.parametrize("inside", [False, True])
def test_parameters_without_gradient_are_frozen(inside, tmp_path):
    torch.manual_seed(0)
    module = nn.Sequential(OrderedDict({"[0]": nn.Linear(3, 4), "1": nn.Tanh(), "2": nn.Linear(4, 2)}))
    module[0].requires_grad_(False)
    data = (np.random.default_rng(0).standard_normal((8, 3)).astype("f4"), np.arange(8, dtype=np.int32) % 2)
    net = mb.from_torch(module, (torch.zeros(1, 3),))

    def scoped(x):
        with mb.scope("body"):
            return net(x)

    fitted = mb.fit(
        scoped if inside else net, data, loss=mb.cross_entropy, batch_size=4, learners=1,
        update={"lr": 0.1}, stop={"epochs": 1}, out=str(tmp_path),
    )  # fmt: skip
    state = module.state_dict()
    found = {name.removeprefix("body."): array for name, array in fitted.weights.items()}
    moved = {name: not np.array_equal(array, state[name].numpy()) for name, array in found.items()}
    assert moved == {"[0].weight": False, "[0].bias": False, "2.weight": True, "2.bias": True}


def test_weights_that_do_not_fit():
    weights = {"weight": np.ones((2, 3), "f4"), "bias": np.zeros(2, "f4")}
    made = into_torch(nn.Linear(3, 2), weights)
    assert float(made.weight.detach().sum()) == 6
    with pytest.raises(ConfigError, match=r"weight is \(2, 3\), Linear has \(3, 2\)"):
        into_torch(nn.Linear(2, 3), weights)
    with pytest.raises(ConfigError, match="the net has the weight bias, Linear has none of that name"):
        into_torch(nn.Linear(3, 2, bias=False), weights)
    del weights["bias"]
    with pytest.raises(ConfigError, match="Linear has the weight bias, the net has none of that name; strict=False"):
        into_torch(nn.Linear(3, 2), weights)
    into_torch(nn.Linear(3, 2), weights, strict=False)
    scoped = {"body.weight": np.ones((2, 3), "f4"), "body.bias": np.zeros(2, "f4"), "head.weight": np.ones(3)}
    assert float(into_torch(nn.Linear(3, 2), scoped, scope="body.").weight.detach().sum()) == 6


def test_tied_weights_come_back_at_both_places():
    module = modules.GPT()
    net = mb.from_torch(module, (torch.zeros(1, 12, dtype=torch.long),))
    weights = {name: array + 1 for name, array in net.weights.items()}
    back = into_torch(modules.GPT(), weights)
    assert back.lm_head.weight is back.transformer["wte"].weight
    assert torch.allclose(back.lm_head.weight, module.lm_head.weight + 1)


def test_without_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"PyTorch is not installed.*pip install torch"):
        mb.from_torch(None, ())
