"""Half-lives in samples: the same average of samples, however many of them an update takes."""

from __future__ import annotations

from typing import Any

import pytest

from mpibow.optim.adam import Adam
from mpibow.optim.adamw import AdamW
from mpibow.optim.lion import Lion
from mpibow.optim.rmsprop import RmsProp
from mpibow.optim.sgd import Sgd
from mpibow.optim.table import UPDATES
from mpibow.optim.update import Update


def betas_of(update: Update) -> tuple[float, ...]:
    match update:
        case Sgd():
            return (update.momentum,)
        case RmsProp():
            return (update.alpha,)
        case Adam() | AdamW() | Lion():
            return update.betas
    raise AssertionError(update)


HALVED: list[tuple[Update, tuple[float | None, ...]]] = [
    (Sgd(half_life=64), (64,)),
    (Sgd(nesterov=True, half_life=64), (64,)),
    (RmsProp(half_life=300), (300,)),
    (Adam(half_life=(32, 4096)), (32, 4096)),
    (AdamW(betas=(0.7, 0.8), half_life=(None, 4096)), (None, 4096)),
    (Lion(half_life=(32, None)), (32, None)),
]


@pytest.mark.parametrize(("update", "half_lives"), HALVED)
@pytest.mark.parametrize("samples", [1, 8, 64])
def test_half_is_left_after_so_many_samples(update: Update, half_lives: tuple[float | None, ...], samples: int) -> None:
    resolved = update.at(samples)
    for beta, half_life, before in zip(betas_of(resolved), half_lives, betas_of(update), strict=True):
        if half_life is None:
            assert beta == before
        else:
            assert beta ** (half_life / samples) == pytest.approx(0.5)
    assert resolved.at(7) == resolved
    assert resolved.formula == update.formula
    assert resolved.states == update.states


@pytest.mark.parametrize("name", UPDATES)
def test_without_one_the_betas_stay(name: str) -> None:
    settings: dict[str, Any] = {"momentum": 0.9} if name == "sgd" else {}
    update = UPDATES[name](name=name, **settings)
    assert update.at(8) == update
