"""What bench_sma.py runs and makes of it, on figures that a hand can check; nothing is trained here."""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.averaging import sma_arms as plan
from benchmarks.averaging import sma_cells as planned
from benchmarks.averaging import sma_numbers as numbers
from benchmarks.averaging import sma_page as pages
from mpibow.config import load_mapping
from mpibow.errors import MpibowError
from mpibow.sync.family import Family

GAINS = {"S-SGD, rate x learners, warm-up of an epoch": "learners"}  # those that are not 1, nor measured


def test_a_slope_is_within_groups() -> None:
    """Each group has a level of its own, and weighs as much as its x differ."""
    assert numbers.slope([[(0, 0), (1, 2), (2, 4)]]) == pytest.approx(2)
    assert numbers.slope([[(0, 0), (2, 4)], [(10, 100), (14, 116)]]) == pytest.approx((2 * 4 + 4 * 16) / (2**2 + 4**2))
    assert math.isnan(numbers.slope([[(1, 0), (1, 5)]]))
    assert math.isnan(numbers.slope([]))


def test_a_bootstrap_interval_is_that_of_the_mean() -> None:
    """Of 400 normal values its half width is 1.96 / 20; it is the same at every call."""
    values = np.random.default_rng(0).standard_normal(400).tolist()
    found = numbers.bootstrap(values, lambda each: float(np.mean(each)))
    assert found.value == pytest.approx(np.mean(values))
    assert found.low < found.value < found.high
    assert (found.high - found.low) / 2 == pytest.approx(1.96 / 20, rel=0.1)
    assert found == numbers.bootstrap(values, lambda each: float(np.mean(each)))
    single = numbers.bootstrap([3.0], lambda each: each[0])
    assert (single.value, single.seeds, single.text()) == (3.0, 1, "+3.00")
    assert math.isnan(single.low)


def test_a_difference_is_of_shared_seeds() -> None:
    found = numbers.difference({1: 0.5, 2: 0.25, 7: 9.0}, {2: 0.125, 1: 0.375, 8: 1.0})
    assert (found.value, found.low, found.high, found.seeds) == (0.125, 0.125, 0.125, 2)
    assert found.text(2, 100) == "+12.50 [+12.50, +12.50]"
    assert numbers.difference({1: 0.5}, {2: 0.5}) is None


def test_a_schedule_reaches_an_accuracy_between_two_lengths() -> None:
    """In the logarithm of epochs: half of the way from 4 to 16 is 8. The first crossing counts."""
    assert numbers.reach((4, 16), (0.5, 0.7), 0.6) == pytest.approx(8)
    assert numbers.reach((4, 16, 64), (0.5, 0.7, 0.6), 0.7) == pytest.approx(16)
    assert numbers.reach((4, 16, 64), (0.5, 0.4, 0.6), 0.55) == pytest.approx(16 * 4**0.75)
    assert numbers.reach((4, 16), (0.6, 0.5), 0.6) == 4
    assert numbers.reach((4, 16), (0.5, 0.6), 0.61) == 32


def grid(planned: ModuleType, net: str, arm: str, best: float) -> dict[str, Any]:
    """As if all rates of an arm had run."""
    rated = {cell.key: cell.settings["update"]["lr"] for cell in planned.grid(net, arm)}
    return {name: {"validation": 0.6 if rate == best else 0.5} for name, rate in rated.items()}


def test_rates_are_chosen_once_the_whole_grid_has_run() -> None:
    found = grid(planned, plan.BN, plan.SSGD, 0.003125)
    assert planned.chosen(found, plan.BN, plan.SSGD) == 0.003125
    assert planned.chosen(found, plan.GN, plan.SSGD) is None
    assert planned.chosen(dict(list(found.items())[1:]), plan.BN, plan.SSGD) is None
    assert {cell.table for cell in planned.cells({})} == {"rates"}
    assert {cell.net for cell in planned.cells(found) if cell.table == "branches"} == {plan.BN}


@pytest.mark.parametrize(
    ("table", "epochs", "arms"),
    [
        ("branches", 8, 10),
        ("long branches", 24, 4),
        ("long branches at a small rate", 24, 4),
        ("branches from the first decay", 12, 4),
    ],
)
def test_branches_differ_by_their_rule_alone(table: str, epochs: int, arms: int) -> None:
    """All restart from the trunk's centre: its rule is another one by name. A branch ends with a period."""
    cells = list(planned.branches(grid(planned, plan.BN, plan.SSGD, 0.003125), plan.BN, (1, 2), table))
    assert len({cell.key for cell in cells}) == len(cells) == 2 * arms
    iterations = epochs // 2 * plan.TRAIN // (plan.K * plan.BATCH)
    for cell in cells:
        own, trunk = dict(cell.settings), dict(cell.trunk)
        rule = load_mapping(own, model_given=True, data_given=True).rule
        assert isinstance(rule, Family)
        assert load_mapping(trunk, model_given=True, data_given=True).rule != rule
        assert iterations % rule.point.period == 0
        short, rate = cell.arm in plan.SHORT, 0.003125 * (0.25 if table == plan.SMALL_RUN else 1.0)
        assert own["update"]["lr"] * (plan.K if short else 1) == rate
        assert rule.of(plan.K).used(1.0) == (plan.K if short else 1)
        assert (own["seed"], trunk["update"]["lr"], trunk["stop"]) == (cell.seed, rate, {"epochs": epochs // 2})
        ends = {"name": "cosine", "epochs": epochs}
        if table == plan.DECAY_RUN:  # the rate falls where the branches begin
            ends = {"name": "multistep", "epochs": [epochs // 2, 9], "factor": 0.1}
        assert (own["stop"], own["update"]["schedule"]) == ({"epochs": epochs}, ends)
        del own["rule"], trunk["rule"], own["stop"], trunk["stop"]
        assert short or own == trunk


def test_baselines_are_run_with_one_learners_rate_and_with_their_own() -> None:
    found = {name: cell for arm in plan.ARMS for name, cell in grid(planned, plan.BN, arm, 0.003125).items()}
    found |= grid(planned, plan.BN, plan.ONE, 0.0015625) | grid(planned, plan.BN, plan.SSGD, 0.0015625)
    cells = {cell.arm: cell.settings for cell in planned.baselines(found, plan.BN, (1,))}
    assert len(cells) == 2 * len(plan.ARMS) - 2  # once where the two rates are the same
    for arm in plan.ARMS:
        rates = (0.0015625,) if arm in (plan.ONE, plan.SSGD) else (0.003125, 0.0015625)
        for rate in rates:
            config = load_mapping(cells[planned.at_rate(arm, rate)], model_given=True, data_given=True)
            assert (config.update.lr, config.learners) == (rate, 1 if arm.startswith("one learner") else plan.K)
            assert config.update.warmup.epochs == ("warm-up" in arm)
            usual = "measured" if config.rule.name == "sma" else 1.0
            assert config.rule.of(plan.K).gain == GAINS.get(arm, usual)


def test_long_baselines_have_the_same_rates_and_more_epochs() -> None:
    found = {name: cell for arm in plan.ARMS for name, cell in grid(planned, plan.BN, arm, 0.003125).items()}
    long = set(planned.baselines(found, plan.BN, (1, 2), plan.LONG_ARMS, plan.LONG_WHOLE))
    short = {cell.key: cell for cell in planned.baselines(found, plan.BN, (1, 2))}
    assert len(long) == 2 * len(plan.LONG_ARMS)
    for cell in long:
        other = short[planned.key(plan.WHOLE, cell.net, cell.arm, cell.seed)].settings
        update = {**other["update"], "schedule": {"name": "cosine", "epochs": plan.LONG}}
        assert cell.settings == {**other, "update": update, "stop": {"epochs": plan.LONG}}


def test_baselines_are_compared_with_one_learner_with_a_warm_up() -> None:
    found = grid(planned, plan.BN, plan.ONE, 0.0015625) | grid(planned, plan.BN, plan.SMA, 0.003125)
    alone, warm = (plan.ONE, 0.0015625, 0.55), (plan.WARM_ONE, 0.0015625, 0.6)
    for arm, rate, mean in (alone, warm, (plan.SMA, 0.003125, 0.59), (plan.SMA, 0.0015625, 0.5)):
        for seed in (1, 2):
            cell = {"mean": mean + 0.1 * seed, "average": mean, "gain": 2.0 * seed}
            found[planned.key("baselines", plan.BN, planned.at_rate(arm, rate), seed)] = cell
    text = pages.page(found)
    assert "| one learner | 0.00156, its best | 3.0 | 2 | 70.00 ± 7.07 | -5.00 [-5.00, -5.00] | 55.00 ± 0.00 |" in text
    assert f"| {plan.WARM_ONE} | 0.00156, one learner's | 3.0 | 2 | 75.00 ± 7.07 |  | 60.00 ± 0.00 |" in text
    assert "| SMA | 0.00313, its best | 3.0 | 2 | 74.00 ± 7.07 | -1.00 [-1.00, -1.00] | 59.00 ± 0.00 |" in text
    assert "| SMA | 0.00156, one learner's | 3.0 | 2 | 65.00 ± 7.07 | -10.00 [-10.00, -10.00] |" in text


def test_schedules_differ_from_baselines_by_their_epochs_alone() -> None:
    """Those of the usual length are the baselines that have run."""
    found = {name: cell for arm in plan.ARMS for name, cell in grid(planned, plan.BN, arm, 0.003125).items()}
    usual = {cell.key: cell for cell in planned.baselines(found, plan.BN, (1, 2))}
    cells = list(planned.schedules(found, plan.BN, (1, 2)))
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 4 * 4
    for cell in cells:
        epochs = cell.settings["stop"]["epochs"]
        arm = cell.arm.removesuffix(f", {epochs} epochs")
        other = usual[planned.key(plan.WHOLE, plan.BN, arm, cell.seed)]
        update = {**other.settings["update"], "schedule": {"name": "cosine", "epochs": epochs}}
        assert cell.settings == {**other.settings, "update": update, "stop": {"epochs": epochs}}
        assert (cell.table, cell.also) == ("baselines" if epochs == 8 else "schedules", "schedules")
        assert load_mapping(dict(cell.settings), model_given=True, data_given=True).update.warmup.epochs == 1
    assert next(cell.key for cell in cells) == (
        "schedules | three-conv, batch norm | one learner, warm-up of an epoch, rate 0.003125, 4 epochs | seed 1"
    )
    assert not list(planned.schedules({}, plan.BN, (1,)))


def test_schedules_are_compared_with_one_learner_after_eight_epochs() -> None:
    found = grid(planned, plan.BN, plan.ONE, 0.00625)
    curves = {plan.WARM_ONE: (0.5, 0.55, 0.6, 0.61), plan.WARM: (0.4, 0.45, 0.5, 0.7), plan.GAINED: (0.59,) * 4}
    for arm, curve in curves.items():
        for epochs, mean in zip(plan.SHARES, curve, strict=True):
            for seed in (1, 2):
                name, row = planned.of_length(arm, 0.00625, epochs)
                found[planned.key(name, plan.BN, row, seed)] = {"mean": mean + 0.1 * seed, "average": mean, "gain": 1.0}
    text = pages.page(found)
    assert "| one learner, warm-up of an epoch | 65.00 ± 7.07 | 70.00 ± 7.07 | 75.00 ± 7.07 |" in text
    assert "76.00 ± 7.07 | 2 | 1.00 [1.00, 1.00] |" in text
    assert f"| 85.00 ± 7.07 | 2 | {(11 / 8) ** 0.5:.2f} [" in text  # half of the way from 8 epochs to 11
    assert "74.00 ± 7.07 | 2 | >1.4 [>1.4, >1.4] |" in text


def test_rules_of_a_fixed_gain_differ_by_their_replicas_alone() -> None:
    found = grid(planned, plan.BN, plan.ONE, 0.00625)
    cells = list(planned.fixed(found, plan.BN, (1, 2)))
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 2 * 2
    for sma, ssgd in zip(cells[::2], cells[1::2], strict=True):
        rules = [load_mapping(dict(cell.settings), model_given=True, data_given=True).rule for cell in (sma, ssgd)]
        points = [rule.of(64) for rule in rules if isinstance(rule, Family)]
        assert [point.replicas for point in points] == ["pulled", "reset"]
        assert points[0].gain == points[1].gain == float(sma.arm.rpartition(" ")[2])
        assert {**sma.settings, "rule": None} == {**ssgd.settings, "rule": None}
    for cell in cells:
        mean = 0.6 + 0.1 * cell.seed - 0.02 * cell.arm.startswith("S-SGD")
        found[cell.key] = {"mean": mean, "distance": 0.003}
    row = "| 6 | 2 | 0.0030 | 75.00 ± 7.07 | 73.00 ± 7.07 | +2.00 [+2.00, +2.00] |"
    assert row in pages.page(found)
    assert not list(planned.fixed({}, plan.BN, (1,)))


def test_a_gain_shows_the_noise_scale() -> None:
    """Noise 30 times the signal in a batch of 8, of 16 learners: gain 31 / (30 / 16 + 1)."""
    assert numbers.noise_scale(31 / (30 / 16 + 1), 16, 8) == pytest.approx(8 * 30)


def test_numbers_of_learners_differ_by_them_alone() -> None:
    """An epoch has whole iterations of each; one and the usual number are the baselines that have run."""
    found = {name: cell for arm in plan.ARMS for name, cell in grid(planned, plan.BN, arm, 0.003125).items()}
    usual = {cell.key: cell for cell in planned.baselines(found, plan.BN, (1, 2))}
    cells = list(planned.learners(found, plan.BN, (1, 2)))
    assert len({cell.key for cell in cells}) == len(cells) == 2 * (1 + 3 * 4)
    for cell in cells:
        learners = cell.settings["learners"]
        arm = cell.arm.removesuffix(f", {learners} learners")
        own = {"learners": learners}
        if arm.startswith(plan.LOOSE):
            own["rule"] = {"name": "sma", "alpha": 1 / learners}
        assert cell.settings == {**usual[planned.key(plan.WHOLE, plan.BN, arm, cell.seed)].settings, **own}
        assert (cell.table, cell.also) == ("baselines" if learners in (1, 16) else "learners", "learners")
        assert plan.TRAIN % (learners * plan.BATCH) == 0


def counted(plan: ModuleType, planned: ModuleType) -> dict[str, Any]:
    """Learners of SMA, and one: a noise scale of 240 samples. 256 make 40 iterations, which take half of the gain."""
    found = grid(planned, plan.BN, plan.ONE, 0.00625)
    for learners, mean, more in ((1, 0.66, {}), (16, 0.65, {}), (256, 0.6, {"gain_mean": 7.5})):
        for seed in (1, 2):
            name, row = planned.of_count(plan.WARM, 0.00625, learners)
            gain = 1 + (31 / (30 / learners + 1) - 1) * (0.5 if learners == 256 else 1.0)
            found[planned.key(name, plan.BN, row, seed)] = {"mean": mean + 0.1 * seed, "gain": gain, **more}
    return found


def test_learners_stand_beside_the_noise_scale() -> None:
    found = counted(plan, planned)
    for seed in (1, 2):
        table, row = planned.of_count(plan.GAINED, 0.00625, 256)
        found[planned.key(table, plan.BN, row, seed)] = {"mean": 0.58 + 0.1 * seed, "gain": 14.4}
    text = pages.page(found)
    arm = "SMA, warm-up of an epoch"
    assert f"| {arm} | 1 | 8 | 1.0 |  | 240 | 0.033 | 2 | 81.00 ± 7.07 |  |  |" in text
    assert f"| {arm} | 16 | 128 | 10.8 |  | 240 | 0.533 | 2 | 80.00 ± 7.07 | -1.00 [-1.00, -1.00] |  |" in text
    beside = "75.00 ± 7.07 | -6.00 [-6.00, -6.00] | +2.00 [+2.00, +2.00] |"
    assert f"| {arm} | 256 | 2,048 | 14.4 | 7.5 | 240 | 8.533 | 2 | {beside}" in text


def test_the_figure_has_the_numbers_of_learners(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.averaging import sma_plot, sma_scaling

    drawn = sma_plot.draw(sma_scaling.counts(counted(plan, planned), plan.BN), tmp_path / "sma.svg")
    text = drawn.read_text()
    assert all(f"<!-- {word} -->" in text for word in ("SMA", "16", "256", "accuracy after 8 epochs, %"))
    with pytest.raises(MpibowError, match="no cell of --only learners has run"):
        sma_plot.draw([], tmp_path / "none.svg")


def test_other_nets_have_grids_and_epochs_of_their_own() -> None:
    found = {name: {"validation": rate} for rate, name in rated(planned, plan.RESNET, plan.SSGD)}
    cells = list(planned.branches(found, plan.RESNET, (1,)))
    assert [cell.arm for cell in cells] == [
        *("reset", "pulled, alpha 1", "pulled, alpha 1/16", "reset, period 16", "pulled, alpha 0"),
        "pulled, alpha 1/16, gain 16",
    ]
    for cell in cells:
        assert cell.settings["update"]["lr"] == (0.2 / 16 if "gain" in cell.arm else 0.2)
        assert (cell.settings["stop"], cell.trunk["stop"]) == ({"epochs": 4}, {"epochs": 2})
    for net, arms in ((plan.RESNET, plan.SCHEDULED), (plan.LENET, plan.BASELINES)):
        found = {name: {"validation": -rate} for rate, name in rated(planned, net, plan.WARM_ONE)}
        runs = list(dict.fromkeys(planned.baselines(found, net, (1, 2), arms)))  # at that rate: no other grid has run
        lowest = min(plan.NETS[net].grids[plan.WARM_ONE])
        assert [cell.arm for cell in runs] == 2 * [planned.at_rate(arm, lowest) for arm in arms]
        epochs = 4 if net == plan.RESNET else 8
        assert all(cell.settings["update"]["schedule"] == {"name": "cosine", "epochs": epochs} for cell in runs)


def rated(planned: ModuleType, net: str, arm: str) -> list[tuple[float, str]]:
    return [(cell.settings["update"]["lr"], cell.key) for cell in planned.grid(net, arm)]


def test_other_nets_are_compared_with_one_learner_with_a_warm_up() -> None:
    found = {name: {"validation": -rate} for rate, name in rated(planned, plan.RESNET, plan.WARM_ONE)}
    for arm, mean in ((plan.WARM_ONE, 0.6), (plan.WARM, 0.59)):
        cell = {"mean": mean, "average": mean, "gain": 2.0}
        found[planned.key("baselines", plan.RESNET, planned.at_rate(arm, 0.00625), 1)] = cell
    text = pages.page(found)
    assert "## Baselines, 4 epochs: ResNet-20" in text
    assert "| one learner, warm-up of an epoch | 0.00625, its best | 2.0 | 1 | 60.00 |  | 60.00 |" in text
    assert "| SMA, warm-up of an epoch | 0.00625, one learner's | 2.0 | 1 | 59.00 | -1.00 | 59.00 |" in text
    assert "ResNet-20:\n\n| arm | 0.00625 | 0.0125 | 0.025 | 0.05 | 0.1 | 0.2 |" in text


def test_muon_is_an_optimiser_of_the_same_net() -> None:
    """Every arm has Muon in each learner, or of the mean gradient; MuLoCo of one learner has the momentum of docs."""
    found = {cell.key: {"validation": 0.5} for arm in plan.MUON_ARMS for cell in planned.grid(plan.MUON, arm)}
    cells = list(dict.fromkeys(planned.baselines(found, plan.MUON, (1,), plan.MUON_ARMS)))
    configs = [load_mapping(dict(cell.settings), model_given=True, data_given=True) for cell in cells]
    assert {(config.update.name, config.update.lr) for config in configs} == {("muon", 0.0025)}
    assert [(config.rule.name, config.learners) for config in configs] == [
        *(("sma", 1), ("ssgd", 16), ("local_sgd", 16), ("sma", 16), ("muloco", 16), ("muloco", 1))
    ]  # fmt: skip
    assert [config.rule.point.outer_momentum for config in configs if config.rule.name == "muloco"] == [0.9, 0.6]
    iterations = plan.EPOCHS * plan.TRAIN // (plan.K * plan.BATCH)
    assert not any(iterations % config.rule.point.period for config in configs)


def test_numbers_of_learners_are_not_tuned_for() -> None:
    found = grid(planned, plan.RESNET, plan.WARM_ONE, 0.0125)
    cells = list(planned.untuned(found, (1, 2)))
    assert [cell.settings["learners"] for cell in cells] == 2 * [1, 16, 64]
    for cell in cells:
        assert cell.settings["augment"] == {"pad": 4, "flip": True}
        assert (cell.settings["update"]["lr"], cell.settings["stop"]) == (0.0125, {"epochs": 10})
        mean = 0.8 + 0.01 * cell.seed - 0.001 * cell.settings["learners"]
        found[cell.key] = {"mean": mean, "gain": float(cell.settings["learners"])}
    text = pages.page(found)
    assert "| 1 | 1.0 | 2 | 81.40 ± 0.71 |  |" in text
    assert "| 64 | 64.0 | 2 | 75.10 ± 0.71 | -6.30 [-6.30, -6.30] |" in text


def test_the_growth_of_the_gain_is_chosen_on_other_images() -> None:
    found = grid(planned, plan.BN, plan.WARM, 0.0125)
    cells = list(planned.growths(found, plan.BN))
    assert {(cell.seed, cell.settings["update"]["lr"]) for cell in cells} == {(plan.GRID_SEED, 0.0125)}
    assert [(cell.settings["learners"], cell.growth) for cell in cells[4:6]] == [(16, 320), (64, 20)]
    found |= {cell.key: {"validation": cell.growth / 1000} for cell in cells}
    assert "| 64 | 2.00 | 4.00 | 8.00 | 16.00 | 32.00 |" in pages.page(found)


def test_each_cell_is_one_processs(tmp_path: Path) -> None:
    """Branches of one trunk are claimed together, as the trunk is trained once; a claim ends with its process."""
    from benchmarks.averaging import sma_claims

    found = grid(planned, plan.BN, plan.SSGD, 0.003125)
    cells = list(planned.branches(found, plan.BN, (1, 2)))
    one, other = sma_claims.Claim(tmp_path), sma_claims.Claim(tmp_path)
    assert (one.first(cells), other.first(cells)) == (cells[0], cells[10])
    assert (one.first(cells[1:]), other.first(cells[:10])) == (cells[1], None)
    one.drop()
    assert other.first(cells) == cells[0]
    assert one.first(cells[:11]) == cells[10]


def test_results_of_several_processes_are_all_kept(tmp_path: Path) -> None:
    from benchmarks.averaging import sma_claims

    path = tmp_path / "sma.json"
    assert sma_claims.kept(path) == {}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: sma_claims.keep(path, f"cell {n}", {"mean": n}), range(40)))
    assert sma_claims.kept(path) == {f"cell {n}": {"mean": n} for n in range(40)}


def test_a_net_or_a_table_can_be_asked_for() -> None:
    from benchmarks.averaging import bench_sma

    asked = {name: {cell.net for cell in bench_sma.missing({}, name)} for name in ("resnet20", "mnist", "rates")}
    assert asked == {"resnet20": {plan.RESNET}, "mnist": {plan.LENET}, "rates": set(plan.NETS) - {plan.FULL}}


def test_a_table_is_refused_before_its_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.averaging import bench_sma

    words = ["bench_sma.py", "--only", "schedules", "--results", str(tmp_path / "sma.json")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit):
        bench_sma.main()
    assert "--only schedules: needs rates that have not run; run --only rates first" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_refused_with_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.averaging import bench_sma

    folder, results = tmp_path / "cifar10", tmp_path / "sma.json"
    words = ["--only", "rates", "--cifar", folder, "--results", results, "--runs", tmp_path / "runs"]
    monkeypatch.setattr("sys.argv", ["bench_sma.py", *map(str, words)])
    with pytest.raises(SystemExit):
        bench_sma.main()
    assert f"python -m mpibow convert cifar --source FOLDER --output {folder}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def branch(mean: float, loss: float, distance: float) -> dict[str, Any]:
    return {"mean": mean, "mean_loss": loss, "anew": mean + 0.001, "anew_loss": loss, "distance": distance}


def test_the_page_has_differences_within_seeds_and_slopes_over_spreads() -> None:
    """Of two seeds whose levels differ by far more than their arms."""
    found = grid(planned, plan.BN, plan.SSGD, 0.003125)
    spreads = {"reset": 1e-7, "pulled, alpha 1": 0.001, "pulled, alpha 1/4": 0.01, "pulled, alpha 1/16": 0.1}
    spreads |= {"pulled, alpha 1/64": 1.0, "pulled, alpha 0": 10.0}
    for seed, level in ((1, 0.5), (2, 0.7)):
        for n, (arm, distance) in enumerate(spreads.items()):
            name = planned.key("branches", plan.BN, arm, seed)
            found[name] = branch(level - 0.01 * n, 1.0 + 0.002 * n, distance)
    text = pages.page(found)
    assert "Rate 0.003125, the best of the grid for S-SGD." in text
    assert "| reset | 2 | 0 | 60.00 ± 14.14 |  |  | +0.10 [+0.10, +0.10] |" in text
    assert (
        "| pulled, alpha 1/16 | 2 | 0.1000 | 57.00 ± 14.14 | -3.00 [-3.00, -3.00] | +0.0060 [+0.0060, +0.0060] | "
        "+0.10 [+0.10, +0.10] |" in text
    )
    assert "alpha 1 to 0, 2 seeds: -1.00 [-1.00, -1.00] points of accuracy, +0.0020 [+0.0020, +0.0020] of loss" in text
    assert "alpha 1 to 1/64, 2 seeds: -1.00 [-1.00, -1.00] points" in text
    assert "**60.00**" in text
    assert "group norm" not in text


def test_a_seed_that_lacks_an_arm_is_in_no_slope_and_a_diverged_run_guesses() -> None:
    found = {planned.key("branches", plan.BN, "pulled, alpha 1", 1): branch(0.6, 1.0, 0.01)}
    assert pages.spread_slope(found, "branches", plan.BN, ["pulled, alpha 1", "pulled, alpha 0"], "mean") is None
    found[planned.key("branches", plan.BN, "pulled, alpha 1", 3)] = {"diverged": True, "validation": 0.0}
    assert pages.by_seed(found, "branches", plan.BN, "pulled, alpha 1", "mean") == {1: 0.6, 3: 0.1}
    assert pages.by_seed(found, "branches", plan.BN, "pulled, alpha 1", "mean_loss") == {1: 1.0}


def test_what_is_missing_is_listed_by_table() -> None:
    cells = list(planned.grid(plan.BN, plan.SSGD))
    assert pages.left_out(cells) == "\n## Missing\n\n- rates, three-conv, batch norm: 6 cells\n\n"
    assert pages.left_out([]) == "\n## Missing\n\nNothing.\n"


def test_arms_go_on_from_one_trunk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two learners on made-up images: replicas that are reset stay together, those that nothing pulls do not."""
    from benchmarks.averaging import sma_runs

    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (2560, 3, 32, 32), np.uint8), np.arange(2560, dtype=np.int32) % 10

    class Made:
        train, validation, test = (images, labels), (images[:500], labels[:500]), (images[:1000], labels[:1000])

    common = planned.settings(plan.BN, 0.003, 1, 2, learners=2, batch_size=64, ema={"half_life": 100})
    trunk = common | {"rule": plan.TRUNK, "stop": {"epochs": 1}}
    cells = [
        planned.Cell("branches", plan.BN, arm, 1, common | {"rule": rule}, trunk)
        for arm, rule in plan.BRANCHES["branches"].items()
        if arm in (plan.REFERENCE, "pulled, alpha 0")
    ]
    reset, free = (sma_runs.run(cell, Made, tmp_path) for cell in cells)
    assert len(re.findall("^continuing .*iteration 20$", "".join(capsys.readouterr()), re.MULTILINE)) == 2
    assert reset["distance"] < 1e-6 < 1e-3 < free["distance"]
    for found in (reset, free):
        assert {"mean", "mean_loss", "anew", "anew_loss", "average", "average_loss"} <= found.keys()
        assert 0 < found["anew_loss"] < 10
        assert found["anew_loss"] != found["mean_loss"]
    assert len(list((tmp_path / "trunk").iterdir())) == 1
    rates = sma_runs.run(planned.Cell("rates", plan.GN, "S-SGD", 1, trunk), Made, tmp_path)
    assert rates.keys() == {"seconds", "gain", "distance", "distance_last", "validation"}
    Made.train = (images[:, :1, :28, :28], labels)
    Made.test = (images[:500, :1, :28, :28], labels[:500])
    warm = planned.settings(plan.LENET, 0.003, 1, 1, learners=2, batch_size=64, **plan.ARMS[plan.WARM])
    lenet = sma_runs.run(planned.Cell("baselines", plan.LENET, plan.WARM, 1, warm), Made, tmp_path)
    assert lenet.keys() >= {"mean", "gain"}
    assert not lenet.keys() & {"anew", "average"}
    assert sma_runs.MODELS.keys() == plan.NETS.keys()
