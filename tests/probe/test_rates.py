"""The range test of learning rates: its formulas by hand, and what it finds for nets whose limits are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow import train
from mpibow.comm import Single
from mpibow.errors import ConfigError
from mpibow.probe.rates import Rising, diverged_at, find_rate, judged, least_at, range_test, smoothed, steepest_at
from tests.refusals import exits, refuses
from tests.run import tiny
from tests.run.processes import write_run

RATES = [1e-4 * 10 ** (n / 25) for n in range(100)]  # to about 1


def curve(n: float) -> float:
    """2 at first, falls to 0.5 around n = 40 and rises again from n = 60 on."""
    return 0.5 + 1.5 / (1 + math.exp((n - 40) / 4)) + (0.0 if n < 60 else 0.01 * (n - 60) ** 2)


def test_smoothed_has_no_bias_towards_0():
    assert smoothed([3.0] * 5) == pytest.approx([3.0] * 5)
    assert smoothed([1.0, 3.0]) == pytest.approx([1.0, (0.9 * 0.1 * 1.0 + 0.1 * 3.0) / 0.19])
    assert math.isnan(smoothed([1.0, math.nan, 1.0])[2])


def test_the_rates_rise_exponentially():
    assert [Rising(100.0, 4.0).rate(epoch) for epoch in (0.0, 2.0, 4.0)] == pytest.approx([1.0, 10.0, 100.0])


def test_a_curve_is_judged_where_it_falls_and_turns():
    found = judged("sgd", RATES, [curve(n) for n in range(100)])
    assert found.steepest == pytest.approx(RATES[40], rel=0.5)
    assert found.least == pytest.approx(RATES[57], rel=0.6)
    assert found.suggestion == pytest.approx(found.least / 10)
    assert RATES[66] < found.diverged < RATES[85]
    text = str(found)
    assert "<- steepest" in text
    assert text.splitlines()[-1].startswith("suggestion for sgd: update.lr=0.00")


def test_a_loss_that_is_not_finite_ends_it():
    assert diverged_at([2.0, 1.0, math.nan]) == 2
    assert diverged_at([2.0] * 30) is None
    assert diverged_at([]) is None
    found = judged("sgd", RATES[:31], [curve(n) for n in range(30)] + [math.inf])
    assert found.diverged == RATES[30]
    assert "not finite" in str(found)


def test_where_the_loss_does_not_fall_nothing_is_suggested():
    found = judged("adamw", RATES, [1.0 + 0.01 * n for n in range(100)])
    assert (found.suggestion, found.steepest, found.least) == (None, None, None)
    assert str(found).splitlines()[-1].startswith("no suggestion: the loss fell at no rate from 0.0001 to ")
    assert least_at([3.0, 2.0]) is None
    assert steepest_at(RATES, [1.0]) is None


# Of a quadratic: gradient descent on h/2 w^2 diverges above the rate 2 / h.


def quadratic(x: mb.Tensor) -> mb.Tensor:
    w = mb.parameter((1,), initial=mb.Constant(1.0), name="w")
    each = (x * 0.0 + 1.0) * w
    return each * each * 2.0  # h = 4


def test_the_limit_of_gradient_descent_is_found(here: Path):
    data = {"x": np.ones(64, np.float32)}
    settings = {"batch_size": 2, "update": {"name": "sgd", "momentum": 0.0}, "device": "numpy"}
    found = mb.find_lr(quadratic, data, lowest=1e-3, highest=100.0, **settings)
    assert found.rates[0] == pytest.approx(1e-3)
    assert found.losses[0] == pytest.approx(2.0)
    assert 0.5 < found.diverged < 5.0  # the limit is 0.5; the loss, near 0 by then, takes some steps to show it
    assert not list(here.iterdir())  # nothing is kept
    again = mb.find_lr(quadratic, data, lowest=1e-3, highest=100.0, **settings)
    assert again.losses == found.losses


def test_settings_of_the_course_are_ignored(here: Path):
    loss = {"metric": "loss", "patience": 5}
    settings = {"validation": 0.1, "update": {"schedule": {"name": "plateau", "metric": "loss"}}, "stop": loss}
    mb.find_lr(lambda image: mb.dense(mb.flatten(image), 3), tiny.images(), batch_size=2, **settings)


@pytest.mark.parametrize("name", ["sgd", "lion", "muon"])
def test_every_optimiser_takes_it(name, tmp_path):
    work = tiny.job(tmp_path, update={"name": name}, precision="float32", learners=2)
    found = range_test(work, train.train, iterations=60)
    assert found.optimiser == name
    assert 1e-7 < found.suggestion < 1
    assert not list(tmp_path.iterdir())


OTHER = {"name": "adamw", "lr": 0.02}


@pytest.mark.parametrize("parts", [{"name": "muon", "fallback": OTHER}, {"groups": [{"match": "*", "update": OTHER}]}])
def test_the_rates_of_all_parts_rise(parts, tmp_path):
    """Of a net without hidden matrices, all of whose weights are the other optimiser's."""
    work, alone = (tiny.job(tmp_path, update=update) for update in ({"lr": 0.01, **parts}, OTHER))
    found, expected = range_test(work, train.train), range_test(alone, train.train, lowest=2e-6, highest=20.0)
    assert found.losses == pytest.approx(expected.losses)


def test_bad_ranges_are_refused(tmp_path):
    work = tiny.job(tmp_path)
    with pytest.raises(ConfigError, match=r"^rates: must be two numbers above 0 that rise, got 1 to 0\.1$"):
        range_test(work, train.train, lowest=1.0, highest=0.1)
    with pytest.raises(ConfigError, match=r"^iterations: must be at least 20, got 3$"):
        range_test(work, train.train, iterations=3)
    for ends, said in (
        ("1", "--find-lr-rates: must be two numbers, as 1e-6:10, got '1'"),
        ("0:1", "rates: must be two numbers above 0 that rise, got 0 to 1"),
    ):
        with refuses(said):
            find_rate(work, train.train, Single(), ends, 100)


def test_the_command_prints_a_table_and_draws(here: Path, capsys):
    pytest.importorskip("matplotlib")
    write_run(here)
    before = {path.name for path in here.iterdir()}
    with exits(0):
        train.main(["run.yaml", "device=numpy", "--find-lr-rates", "1e-5:100"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["lr", "loss"]
    assert lines[-2].startswith("suggestion for sgd: update.lr=")
    assert lines[-1] == "lr.svg"
    assert Path("lr.svg").read_text().startswith("<?xml")
    assert {path.name for path in here.iterdir()} == {*before, "lr.svg"}
