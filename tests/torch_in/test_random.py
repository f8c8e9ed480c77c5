"""Small modules at random: one step of SGD and one of AdamW, after PyTorch's own, and the module given back."""

import tempfile
from importlib import import_module

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import mpibow as mb
from tests.oracle import pytorch

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytorch()
random_modules = import_module("tests.torch_in.random_modules")  # imports torch itself

COUNT, LR = 4, 0.01
TOLERANCE = 1e-10  # of the largest number
UPDATES = {
    "sgd": (
        {"name": "sgd", "momentum": 0.9, "weight_decay": 0.01},
        lambda weights: torch.optim.SGD(weights, LR, momentum=0.9, weight_decay=0.01),
    ),
    "adamw": (
        # A weight whose gradient is of rounding errors would move by these: eps holds it.
        {"name": "adamw", "weight_decay": 0.1, "eps": 1e-4},
        lambda weights: torch.optim.AdamW(weights, LR, eps=1e-4, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("kind", random_modules.KINDS)
@settings(max_examples=17, derandomize=True, suppress_health_check=[*HealthCheck])
@given(data=st.data(), seed=st.integers(0, 1000))
def test_one_step_is_pytorchs(kind, data, seed):
    torch.manual_seed(seed)
    module = random_modules.KINDS[kind](data.draw).double()
    x, target = torch.randn(COUNT, *module.shape).double(), torch.randint(3, (COUNT,))
    state = {name: array.clone() for name, array in module.state_dict().items()}
    net = mb.from_torch(module, (x,))
    for name, (update, optimiser) in UPDATES.items():
        with tempfile.TemporaryDirectory() as folder:
            fitted = mb.fit(
                net, (x.numpy(), target.numpy().astype(np.int32)), loss=mb.cross_entropy, batch_size=COUNT, learners=1,
                update={**update, "lr": LR, "decay_biases": True}, stop={"epochs": 1}, device="numpy",
                precision="float64", out=folder,
            )  # fmt: skip
        module.load_state_dict(state)
        module.train()
        stepped = optimiser(module.parameters())
        stepped.zero_grad()
        torch.nn.functional.cross_entropy(module(x), target).backward()
        stepped.step()
        found = module.state_dict()
        for key, array in fitted.weights.items():
            wanted = found[key].numpy()
            error = np.abs(array.reshape(wanted.shape) - wanted).max() / max(np.abs(wanted).max(), 1e-3)
            assert error <= TOLERANCE, (name, key)
        module.eval()
        guess = fitted.to_torch().eval()
        with torch.no_grad():
            assert float((guess(x) - module(x)).abs().max()) <= TOLERANCE * float(module(x).abs().max() + 1)
