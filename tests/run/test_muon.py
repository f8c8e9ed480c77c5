"""Runs with Muon: the same numbers however learners lie on ranks, the same bits however a run is cut."""

from pathlib import Path

import pytest

from mpibow import dense, flatten, relu
from mpibow.errors import ConfigError
from mpibow.graph import Tensor
from mpibow.run.describe import describe_job
from tests.run import tiny
from tests.run.test_resume import check_resumed

# A step of so small a net's matrices costs more than its passes.
MUON = {
    "name": "muon", "lr": 0.05, "weight_decay": 0.01, "l1": 0.001, "largest_share": 10,
    "fallback": {"name": "adamw", "lr": 0.01},
}  # fmt: skip
RULES = ("auto", "crossbow", "ssgd", "independent")


def deep(image: Tensor) -> Tensor:
    """Two hidden matrices."""
    return dense(relu(dense(relu(dense(relu(dense(flatten(image), 12)), 10)), 9)), tiny.CLASSES)


def trained(folder: Path, **settings) -> dict:
    return tiny.train(folder, net=deep, update=MUON, **settings).weights


@pytest.mark.parametrize("rule", RULES)
def test_learners_of_one_rank_or_of_two_are_the_same(tmp_path, rule):
    tiny.spread(tmp_path, within=1e-9, net=deep, update=MUON, rule=rule)


def test_one_learner_takes_the_same_step_by_every_rule(tmp_path):
    sma, ssgd = (trained(tmp_path / rule, rule=rule) for rule in ("auto", "ssgd"))
    assert tiny.distance(ssgd, sma) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_a_run_that_is_cut_goes_on_with_the_same_bits(tmp_path, rule):
    check_resumed(tmp_path, 17, net=deep, update=MUON, rule=rule, learners=2)


def test_the_log_and_the_check_name_the_matrices(tmp_path):
    trained(tmp_path)
    line = next(line for line in (tmp_path / "run/log.txt").read_text().splitlines() if "muon: " in line)
    assert "2 of 4 matrices get orthogonal steps" in line
    assert "dense1.weight (the first), dense4.weight (the last); update.largest_share is 10" in line
    work = tiny.job(tmp_path, net=deep, update={**MUON, "largest_share": 1})
    assert not work.matrices.spans
    assert set(work.matrices.others) == {f"dense{i}.weight" for i in (1, 2, 3, 4)}
    assert "dense2.weight (3.88e-05 GFLOP, 3.22 x the passes), dense3.weight" in describe_job(work, (1,), (1 << 30,))


def test_a_gpu_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"^device cuda: update\.name: muon computes on CPUs only; set device to"):
        tiny.train(tmp_path, net=deep, update=MUON, device="cuda", precision="float32")


def test_it_learns(tmp_path):
    work = tiny.job(tmp_path, net=deep, update=MUON, stop={"epochs": 12}, learners=2)
    assert (tiny.run(work).summary.accuracy or 0) > 0.8  # chance is a third
