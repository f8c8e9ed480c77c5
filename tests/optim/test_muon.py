"""Muon's settings: lengths of steps, rates of the fallback, and what the fallback may not have."""

import pytest

from mpibow.optim import AdamW, Muon, Sgd
from mpibow.optim.groups import WeightGroup
from mpibow.optim.muon import OnMatrices
from mpibow.optim.schedules import Cosine
from tests.refusals import refuses


def test_the_length_of_a_matrixs_step():
    assert Muon(scale="length").scale_of(64, 16) == (False, 1.0)
    assert Muon(scale="spectral").scale_of(64, 16) == (True, 2.0)
    assert Muon(scale="spectral").scale_of(16, 64) == (True, 1.0)
    assert Muon(scale="rms").scale_of(16, 64) == (True, 0.2 * 8)


def test_the_schedule_is_the_fallbacks_too():
    update = Muon(lr=0.1, weight_decay=0.5, fallback=AdamW(lr=0.02, weight_decay=0.25))
    assert update.scalars(0.05, 3)[3:] == update.fallback.scalars(0.01, 3)
    assert update.scalars(0.05, 3)[:3] == (0.0, 0.0, 0.0)
    assert OnMatrices.of(update).scalars(0.05, 3) == (1.0, 0.05, 0.025, *update.fallback.scalars(0.01, 3))


def test_half_lives_of_both():
    update = Muon(half_life=16, fallback=Sgd(half_life=8)).at(8)
    assert update.momentum == 0.5**0.5
    assert update.half_life is None
    assert isinstance(update.fallback, Sgd)
    assert update.fallback.momentum == 0.5


@pytest.mark.parametrize(
    "fallback",
    [
        Sgd(schedule=Cosine()),
        Sgd(clip_norm=1.0),
        AdamW(clip_value=1.0),
        Sgd(decay_biases=True),
        Sgd(groups=(WeightGroup("*"),)),
    ],
)
def test_the_fallback_has_no_schedule_of_its_own(fallback: Sgd | AdamW):
    told = "fallback: has no schedule, warmup, clipping, groups or decay_biases of its own; set them beside it"
    with refuses(told):
        Muon(fallback=fallback)
