"""A training loss that decides, on a simulated GPU, where losses arrive an iteration late: the same bits anyway."""

import pytest

from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.test_whole_runs import run, work
from tests.run import tiny

pytestmark = needs_compiler

SCHEDULE = {"name": "plateau", "metric": "training_loss", "factor": 0.5, "patience": 0, "threshold": 0.9}
SETTINGS = {
    "update": {"lr": 0.02, "momentum": 0.9, "schedule": SCHEDULE}, "learners": 2, "log": {"every": 1},
    "stop": {"epochs": None, "iterations": 40},
}  # fmt: skip


@pytest.mark.parametrize("rule", ["auto", "ssgd"])
def test_evaluations_and_the_order_of_streams_change_nothing(tmp_path, rule):
    settings = {**SETTINGS, "rule": tiny.RULES[rule]}
    often = run(work(tmp_path / "often", evaluate={"every": 0.2, "batch_size": 7}, **settings))
    never = run(work(tmp_path / "never", test=None, **settings), seed=1)
    assert tiny.same_bits(often.weights, never.weights)
    assert len(set(tiny.rates(tmp_path / "often"))) > 2
    assert tiny.rates(tmp_path / "often") == tiny.rates(tmp_path / "never")


@pytest.mark.parametrize("at", [19, 20, 25])  # an epoch is 57 / (3 * 2) = 9.5 iterations
def test_resumed_it_goes_on_alike(tmp_path, at):
    settings = {**SETTINGS, "checkpoint": {"every": f"{at} iterations"}}
    whole = run(work(tmp_path / "whole", **settings))
    run(work(tmp_path / "part", **{**settings, "stop": {"epochs": None, "iterations": at}}))
    part = run(work(tmp_path / "part", **settings), resume=str(tmp_path / "part/run"))
    assert tiny.same_bits(whole.weights, part.weights)
    assert tiny.rates(tmp_path / "part") == tiny.rates(tmp_path / "whole")
