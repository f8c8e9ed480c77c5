"""mpibow.check and fit(check=True): what a sound net and unsound ones are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ConfigError, DivergedError
from tests.refusals import refuses
from tests.run import tiny

IMAGES = tiny.images()
SETTINGS = {"batch_size": 3, "device": "numpy", "stop": {"iterations": 2}, "learners": 1}


def sound(image: mb.Tensor) -> mb.Tensor:
    return mb.dense(mb.relu(mb.dense(mb.flatten(image), 12)), 3)


def deaf(image: mb.Tensor) -> mb.Tensor:
    """Sees nothing of its image."""
    return mb.dense(mb.flatten(image) * 0.0, 3)


def wild(image: mb.Tensor) -> mb.Tensor:
    return mb.dense(mb.flatten(image) * 1e30, 3) * 1e30


def test_a_sound_net_learns_eight_samples(here: Path):
    found = mb.check(sound, IMAGES, augment={"pad": 1}, update={"lr": 1e-9}, **SETTINGS)  # of its own steps
    assert found.shapes == {"logits": (3, 3)}
    assert found.weights == 36 * 12 + 12 + 12 * 3 + 3
    assert found.chance == pytest.approx(np.log(3))
    assert found.learned
    assert found.accuracy == 1.0
    assert found.losses[-1] < 0.2 * found.losses[0]
    assert str(found).splitlines()[:2] == ["check:", "  outputs for a batch: logits (3, 3); 483 weights"]
    assert not list(here.iterdir())


def test_fit_begins_with_it_and_trains_as_without(here: Path, capsys):
    found = mb.fit(sound, IMAGES, check=True, **SETTINGS)
    assert capsys.readouterr().err.startswith(
        "check:\n  outputs for a batch: logits (3, 3); 483 weights\n  first loss "
    )
    assert tiny.same_bits(found.weights, mb.fit(sound, IMAGES, **SETTINGS).weights)


def test_a_net_that_cannot_learn_ends_before_it_trains(here: Path):
    with pytest.raises(ConfigError) as caught:
        mb.fit(deaf, IMAGES, check=True, **SETTINGS)
    assert str(caught.value).startswith("check: the net does not learn 8 samples: the loss went from ")
    assert str(caught.value).endswith(
        " in 300 steps of Adam; look at the loss, at the scale of the inputs, and whether every layer's output is used"
    )
    assert not list(here.iterdir())


def test_a_loss_that_is_not_finite_is_named(here: Path):
    with refuses(
        "check: the loss or a gradient of the first batch is not finite at step 1; look for a division by 0, a "
        "logarithm of 0, or inputs that are not finite or far from 1",
        DivergedError,
    ):
        mb.check(wild, IMAGES, **SETTINGS)


def test_a_first_loss_far_from_chance_is_a_warning(here: Path):
    def sure(image: mb.Tensor) -> mb.Tensor:
        return sound(image) * 100.0

    found = mb.check(sure, IMAGES, **SETTINGS)
    assert found.warnings
    assert " times that of guessing: are inputs scaled, and are the last layer's weights small?" in found.warnings[0]
    assert f"warning: {found.warnings[0]}" in str(found)


def test_a_regression_has_no_chance(here: Path):
    x = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)

    def line(x: mb.Tensor) -> mb.Tensor:
        return mb.reshape(mb.dense(mb.relu(mb.dense(x, 16)), 1), (-1,))

    found = mb.check(line, (x, x.sum(axis=1)), loss=mb.mse_loss, **SETTINGS)
    assert (found.chance, found.accuracy) == (None, None)
    assert found.learned
    assert "guessing" not in str(found)
