"""The example of an own rule: it keeps the contracts of rules, and trains on two ranks, and resumes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from examples.own_rule import Average, Averager
from mpibow.graph.graph import Array
from mpibow.kernels.passes import Local
from mpibow.sync.family import PRESETS, Family
from mpibow.sync.independent import Independent
from mpibow.sync.rule import OnChunks, RuleState
from mpibow.testing import check_rule
from tests.run import tiny


@pytest.mark.parametrize("period", [1, 4])
def test_it_keeps_the_contracts(period: int) -> None:
    check_rule(Average(period=period))


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "post_local_sgd"])
def test_so_do_the_rules_by_name(name: str) -> None:
    check_rule(Family(name=name))
    check_rule(Family(name=name, period=1 if name == "ssgd" else 3))


def test_and_learners_that_are_never_averaged() -> None:
    check_rule(Independent(period=3))


class Alike(Averager):
    """S-SGD: learners of a rank share a copy of the weights."""

    alike, sends, overlaps = True, True, False

    def restart(self) -> None:
        super().restart()
        self.rows.level()

    def update(self, local: Local, chunks: range) -> None:
        weights, states, gradients = self.rows.trained
        assert [len(array) for array in (weights, *states, gradients)] == [1, 1, len(self.rows.weights)]
        self.flat.gradient_sum(gradients, self.out.sums, chunks=chunks)

    def apply(self, local: Local, sums: Array) -> tuple[OnChunks, ...]:
        return (partial(self.step, local, sums[:, : self.out.size]),)

    def step(self, local: Local, sums: Array, chunks: range) -> None:
        weights, states, _ = self.rows.trained
        self.flat.sgd_update(weights, states, sums, local=local, scale=1 / self.k, chunks=chunks)
        part = slice(chunks.start * self.flat.chunk, chunks.stop * self.flat.chunk)
        self.flat.put(self.centre[part], weights[0, part])


def test_one_whose_replicas_are_alike_has_one_copy_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Average, "rule", Alike)
    check_rule(Average())
    own, ssgd = (
        tiny.run(tiny.job(tmp_path / rule.name, rule=rule, learners=2, net=tiny.dropping), 2).weights
        for rule in (Average(), Family(name="ssgd"))
    )
    assert tiny.distance(own, ssgd) < 1e-12


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
