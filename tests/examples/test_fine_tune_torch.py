"""examples/fine_tune.py beside PyTorch's own loop in float64: frozen, then trained, twenty steps."""

from functools import partial
from importlib import import_module

import numpy as np
import pytest

import mpibow as mb
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()

STEPS, FROZEN, COUNT, CLASSES, LR = 20, 8, 12, 2, 0.02
TOLERANCE = 1e-10  # of the largest number of an array


def theirs():
    """The example's net, as PyTorch's users write it."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential()
            for i, (before, after, settings) in enumerate([(1, 16, {"padding": 1}), (16, 32, {"stride": 2})], 1):
                self.body.add_module(f"conv{i}", nn.Conv2d(before, after, 3, **settings))
                self.body.add_module(f"norm{i}", nn.BatchNorm2d(after))
                self.body.add_module(f"relu{i}", nn.ReLU())
            self.head = nn.Linear(32 * 3 * 3, CLASSES)

        def forward(self, x):
            return self.head(self.body(x).flatten(1))

    return Net().double()


def test_twenty_steps(tmp_path):
    torch.manual_seed(0)
    net, example = theirs(), import_module("examples.fine_tune")
    for key, tensor in net.state_dict().items():
        if key.startswith("body") and tensor.ndim == 1:
            tensor.copy_(0.5 + torch.rand(tensor.shape))  # a body that was trained
    images = np.random.default_rng(0).integers(0, 17, (COUNT, 1, 8, 8)).astype(np.uint8)
    labels = np.arange(COUNT) % CLASSES
    body = {key: tensor.numpy().copy() for key, tensor in net.state_dict().items()}
    fitted = mb.fit(
        partial(example.net, classes=CLASSES), (images, labels), normalise="half", weights=body, batch_size=COUNT,
        learners=1, device="numpy", precision="float64", stop={"epochs": None, "iterations": STEPS}, out=str(tmp_path),
        update={"lr": LR, "momentum": 0.9, "groups": [{"match": "body.*", "freeze": {"epochs": FROZEN}}]},
    )  # fmt: skip

    x, y = torch.from_numpy((images - 127.5) / 127.5), torch.from_numpy(labels)
    optimiser = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    for step in range(STEPS):
        net.train()
        net.body.train(step >= FROZEN).requires_grad_(step >= FROZEN)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()

    found = net.state_dict()
    for name, array in fitted.weights.items():
        node, _, key = name.rpartition(".")
        expected = found[f"{node}.{ {'mean': 'running_mean', 'variance': 'running_var'}.get(key, key) }"].numpy()
        if key == "weight":
            assert np.abs(expected - body[name]).max() > 1e-3  # it was trained
        np.testing.assert_allclose(array, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max(), err_msg=name)
