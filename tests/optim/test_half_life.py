"""Half-lives in samples: the same average of samples, however many of them an update takes."""

import numpy as np
import pytest

from mpibow.optim import UPDATES, Adam, AdamW, Lion, Muon, RmsProp, Sgd, Update
from tests.formulas import machines


def betas_of(update: Update) -> tuple[float, ...]:
    match update:
        case Sgd():
            return (update.momentum,)
        case RmsProp():
            return (update.alpha,)
        case Adam() | AdamW() | Lion():
            return update.betas
    raise AssertionError(update)


HALVED = [
    (Sgd(half_life=64), (64,)),
    (Sgd(nesterov=True, half_life=64), (64,)),
    (RmsProp(half_life=300), (300,)),
    (Adam(half_life=(32, 4096)), (32, 4096)),
    (AdamW(betas=(0.7, 0.8), half_life=(None, 4096)), (None, 4096)),
    (Lion(half_life=(32, None)), (32, None)),
]


@pytest.mark.parametrize(("update", "half_lives"), HALVED)
@pytest.mark.parametrize("samples", [1, 8, 64])
def test_half_is_left_after_so_many_samples(update: Update, half_lives, samples):
    resolved = update.at(samples)
    for beta, half_life, before in zip(betas_of(resolved), half_lives, betas_of(update), strict=True):
        if half_life is None:
            assert beta == before
        else:
            assert beta ** (half_life / samples) == pytest.approx(0.5)
    assert resolved.at(7) == resolved
    assert resolved.formula == update.formula
    assert resolved.states == update.states


@pytest.mark.parametrize("update", [update for update, half_lives in HALVED if None not in half_lives])
def test_of_far_more_samples_the_gradient_alone_counts(update: Update):
    g, many = np.array([0.5, -2.0]), 10**9
    states = [np.ones(2) for _ in update.states]
    step = machines.numpy(update.formula, np.ones(2), g, states, update.scalars_at(0.1, 2, many, 2 * many))
    np.testing.assert_allclose(step, -0.1 * (g if update.name == "sgd" else np.sign(g)), rtol=1e-6)


@pytest.mark.parametrize("name", UPDATES)
def test_without_one_the_betas_stay(name):
    settings = {"momentum": 0.9} if name == "sgd" else {}
    update = UPDATES[name](name=name, **settings)
    assert update.at(8) == update


@pytest.mark.parametrize("half_life", [(16, 4096), (None, 512), (16, None), (None, None)])
@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_updates_of_other_sizes_leave_no_bias(kind, half_life):
    """The average of gradients that are all alike is that gradient, whatever the updates before took."""
    for update in (kind(half_life=half_life, weight_decay=0.0), Muon(fallback=kind(half_life=half_life))):
        w, g = np.zeros(3), np.array([0.5, -2.0, 1e-3])
        states, seen = [np.zeros(3) for _ in update.states], 0
        for count, samples in enumerate((8, 8, 32, 8, 64, 4), 1):
            seen += samples
            scalars = update.scalars_at(0.1, count, samples, seen)
            rate = 0.1 if update.name != "muon" else update.fallback.lr * 0.1 / update.lr
            step = machines.numpy(update.formula, w, g, states, scalars)
            np.testing.assert_allclose(step, -rate * np.sign(g), rtol=1e-4)


@pytest.mark.parametrize("update", [update for update, _ in HALVED])
def test_updates_of_one_size_count_as_ever(update: Update):
    for count in (1, 7):
        assert update.scalars_at(0.1, count, 8, 8 * count) == pytest.approx(update.at(8).scalars(0.1, count), rel=1e-12)
