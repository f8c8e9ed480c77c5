"""Every optimiser that PyTorch has beside PyTorch's, in float64: 50 steps with a schedule and two groups.

PyTorch's have no l1: its gradient is given it.
"""

from collections.abc import Callable

import numpy as np
import pytest

from mpibow.formulas import Array
from mpibow.optim import Adagrad, Adam, AdamW, RmsProp, Sgd, Update
from tests.optim.stepping import SIZE, STEPS, gradient, rate_of, start, trained
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
BETAS = (0.8, 0.99)
CASES = {
    "sgd": (Sgd(lr=0.02, weight_decay=0.1), "SGD", {}),
    "sgd, momentum": (Sgd(lr=0.01, momentum=0.9, weight_decay=0.1), "SGD", {"momentum": 0.9}),
    "sgd, nesterov": (
        Sgd(lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1), "SGD", {"momentum": 0.9, "nesterov": True},
    ),
    "adam": (Adam(lr=0.1), "Adam", {}),
    "adam, settings": (
        Adam(lr=0.1, betas=BETAS, eps=0.01, weight_decay=0.1), "Adam", {"betas": BETAS, "eps": 0.01},
    ),
    "adam, amsgrad": (Adam(lr=0.3, amsgrad=True, weight_decay=0.1), "Adam", {"amsgrad": True}),
    "adamw": (AdamW(lr=0.1), "AdamW", {}),
    "adamw, settings": (
        AdamW(lr=0.1, betas=BETAS, eps=0.01, weight_decay=0.5), "AdamW", {"betas": BETAS, "eps": 0.01},
    ),
    "adamw, amsgrad": (AdamW(lr=0.3, amsgrad=True, weight_decay=0.1), "AdamW", {"amsgrad": True}),
    "rmsprop": (RmsProp(), "RMSprop", {}),
    "rmsprop, settings": (
        RmsProp(lr=0.02, alpha=0.9, eps=0.01, weight_decay=0.1), "RMSprop", {"alpha": 0.9, "eps": 0.01},
    ),
    "rmsprop, momentum": (RmsProp(momentum=0.9, weight_decay=0.1), "RMSprop", {"momentum": 0.9}),
    "rmsprop, centred": (RmsProp(eps=0.1, centered=True, weight_decay=0.1), "RMSprop", {"eps": 0.1, "centered": True}),
    "rmsprop, both": (
        RmsProp(lr=0.002, eps=0.1, momentum=0.9, centered=True),
        "RMSprop", {"eps": 0.1, "momentum": 0.9, "centered": True},
    ),
    "adagrad": (Adagrad(lr=0.1), "Adagrad", {}),
    "adagrad, settings": (
        Adagrad(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.3, eps=0.01, weight_decay=0.1),
        "Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.3, "eps": 0.01},
    ),
    "sgd, l1": (Sgd(lr=0.01, momentum=0.9, nesterov=True, l1=0.3), "SGD", {"momentum": 0.9, "nesterov": True}),
    "adam, l1": (Adam(lr=0.1, weight_decay=0.1, l1=0.2), "Adam", {}),
    "adamw, l1": (AdamW(lr=0.1, weight_decay=0.5, l1=0.2), "AdamW", {}),
    "rmsprop, l1": (RmsProp(momentum=0.9, weight_decay=0.1, l1=0.3), "RMSprop", {"momentum": 0.9}),
    "adagrad, l1": (Adagrad(lr=0.1, l1=0.3), "Adagrad", {}),
}  # fmt: skip


def by_torch(make: Callable, update: Update, options: dict) -> Array:
    w = start()
    halves = [torch.tensor(w[: SIZE // 2]), torch.tensor(w[SIZE // 2 :])]
    groups = [{"params": [halves[0]], "weight_decay": update.weight_decay}, {"params": [halves[1]], "weight_decay": 0}]
    optimiser = make(groups, lr=update.lr, **options)
    for iteration in range(STEPS):
        w = np.concatenate([half.numpy() for half in halves])
        slope = gradient(w) + update.l1 * np.sign(w) * (np.arange(SIZE) < SIZE // 2)
        for half, g in zip(halves, np.split(slope, 2), strict=True):
            half.grad = torch.tensor(g)
        for group in optimiser.param_groups:
            group["lr"] = rate_of(update, iteration)
        optimiser.step()
    return np.concatenate([half.numpy() for half in halves])


@pytest.mark.parametrize(("update", "name", "options"), CASES.values(), ids=CASES.keys())
def test_fifty_steps(update: Update, name, options):
    expected = by_torch(getattr(torch.optim, name), update, options)
    assert np.abs(expected - start()).max() > 0.05
    np.testing.assert_allclose(trained(update), expected, rtol=1e-10, atol=1e-10)
