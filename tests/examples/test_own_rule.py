"""The example of an own rule: it keeps the contracts of rules, and trains, alone and on two ranks, and resumes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from examples.own_rule import Average, Averager
from mpibow.sync.family import PRESETS, Family
from mpibow.sync.independent import Independent
from mpibow.sync.rule import RuleState
from mpibow.testing import check_rule
from tests.launching import mpirun, needs_mpi, run
from tests.run import tiny

PROGRAM = Path(__file__).parents[2] / "examples/own_rule.py"


@pytest.mark.parametrize("period", [1, 4])
def test_it_keeps_the_contracts(period: int) -> None:
    check_rule(Average(period=period))


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "post_local_sgd"])
def test_so_do_the_rules_by_name(name: str) -> None:
    check_rule(Family(name=name))
    check_rule(Family(name=name, period=1 if name == "ssgd" else 3))


def test_and_learners_that_are_never_averaged() -> None:
    check_rule(Independent(period=3))


class Forgets(Averager):
    def state(self) -> RuleState:
        return RuleState({}, {}, {"turn": 0})


class Undeclared(Averager):
    def state(self) -> RuleState:
        return RuleState({"mean": self.centre}, {}, {"turn": self.turn})


class Spreads(Averager):
    def restart(self) -> None:
        super().restart()
        self.rows.weights[0] = np.nan


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Forgets, "other bits after a resume"),
        (Undeclared, "not in `arrays`"),
        (Spreads, "not finite"),
    ],
)
def test_a_rule_that_breaks_one(rule: type, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Average, "rule", rule)
    with pytest.raises(AssertionError, match=message):
        check_rule(Average(period=4))


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    settings = {"rule": Average(period=4), "learners": 2, "checkpoint": {"every": "5 iterations", "keep": 9}}
    whole = tiny.run(tiny.job(tmp_path / "whole", **settings), 2)
    point = tmp_path / "whole/run/checkpoints/iteration-0000000015"
    resumed = tiny.run(tiny.job(tmp_path / "whole", **settings), 2, resume=point)
    assert tiny.same_bits(resumed.weights, whole.weights)


def test_alone(tmp_path: Path) -> None:
    done = run([sys.executable, str(PROGRAM)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.4  # chance is 0.1


@needs_mpi
def test_on_two_ranks(tmp_path: Path) -> None:
    done = mpirun(2, str(PROGRAM), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.4
