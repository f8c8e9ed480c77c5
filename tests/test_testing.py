"""The harness for optimisers of a script's own: it passes those of the table, and finds what is wrong with others."""

import math
import re
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest

from mpibow.formulas import Formula, formula
from mpibow.formulas.functions import exp, sqrt, tanh
from mpibow.optim import AdamW, Sgd, Update
from mpibow.testing import check_update, update as testing


def squashed(w, g, velocity, *, rate, keep) -> tuple:
    velocity = keep * velocity + tanh(g)
    return -rate * velocity, velocity


def lost(w, g, velocity, *, rate, keep):
    return -rate * g


def divided(w, g, velocity, *, rate, keep) -> tuple:
    velocity = keep * velocity + g * g
    return -rate * g / sqrt(velocity), velocity


def exploding(w, g, velocity, *, rate, keep) -> tuple:
    return rate * g, exp(velocity + keep)


def weight_alone(w, *, rate, keep):
    return -rate * w


@dataclass(frozen=True)
class Own(Update):
    name: str = "own"
    function: Any = squashed
    numbers: tuple[float, ...] = (0.9,)
    late: float = 0.0

    @property
    def formula(self) -> Formula:
        return formula(self.function)

    def scalars(self, rate: float, count: int) -> tuple[float, ...]:
        return rate + self.late * count, *self.numbers


@dataclass(frozen=True)
class Others(Own):
    @property
    def states(self) -> tuple[str, ...]:
        return ("momenta",)


@dataclass(frozen=True)
class Twofold(Own):
    @property
    def formula(self) -> Formula:
        return formula(squashed if self.weight_decay else divided)


def test_what_is_right_passes_on_every_machine():
    machines = ["numpy"]
    machines += ["numba"] if find_spec("numba") else []
    machines += ["CUDA C++ on the host"] if any(map(shutil.which, ("c++", "g++", "clang++"))) else []
    assert check_update(AdamW(weight_decay=0.1)) == machines
    assert check_update(Own()) == check_update(Sgd()) == machines


WRONG = {
    "no update": ({"name": "sgd"}, "update: must be an mpibow.optim.update.Update, got dict"),
    "one array": (
        Own(function=weight_alone),
        "update 'own': its formula takes ('w',), must take a weight and its gradient",
    ),
    "other states": (Others(), "update 'own': states ('momenta',) are not its formula's arrays ('velocity',)"),
    "a lost state": (
        Own(function=lost),
        "update 'own': its formula gives 1 result(s), a step and ('velocity',) are due",
    ),
    "a scalar short": (Own(numbers=()), "update 'own': gives 1 scalar(s), its formula takes ('rate', 'keep')"),
    "a scalar that is none": (Own(numbers=(math.nan,)), "update 'own': scalar keep is nan at update 1"),
    "a count": (Own(late=1.0), "update 'own': scalars depend on the count, so `counts` must be True"),
    "two formulas": (
        Twofold(weight_decay=0.1),
        "update 'own': its formula depends on weight_decay, which may differ by weight",
    ),
    "0 / 0": (Own(function=divided), "update 'own': not finite after 50 steps: weights"),
    "overflow": (Own(function=exploding), "update 'own': not finite after 50 steps: velocity"),
}


@pytest.mark.parametrize(("update", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_found(update, message):
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}"):
        check_update(update)


def test_a_machine_that_differs_is_found(monkeypatch):
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    loop = testing.NUMBA_LOOP.replace("u[j] = ", "u[j] = 1.0000001 * ")
    monkeypatch.setattr(testing, "NUMBA_LOOP", loop)
    with pytest.raises(AssertionError, match=r"^update 'sgd': step of numba in float\d\d is not NumPy's"):
        check_update(Sgd())
