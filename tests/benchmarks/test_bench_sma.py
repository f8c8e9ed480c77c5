"""What bench_sma.py runs and makes of it, on figures that a hand can check; nothing is trained here."""

import json
import math
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.averaging import bench_sma
from benchmarks.averaging import sma_arms as plan
from benchmarks.averaging import sma_cells as planned
from benchmarks.averaging import sma_numbers as numbers
from benchmarks.averaging import sma_page as pages
from mpibow.config import load_mapping
from mpibow.errors import MpibowError
from mpibow.sync.family import Family


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


def grid(planned: ModuleType, net: str, arm: str, best: float) -> dict:
    """As if all rates of an arm had run."""
    rated = {cell.key: cell.settings["update"]["lr"] for cell in planned.grid(net, arm)}
    return {name: {"validation": 0.6 if rate == best else 0.5} for name, rate in rated.items()}


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


RESULTS = Path(__file__).parents[2] / "benchmarks/results"


@pytest.fixture(scope="module")
def found() -> dict:
    """All that has run."""
    return json.loads((RESULTS / "sma.json").read_text())


def test_the_page_is_made_of_what_is_kept(found: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for its intervals, which take a minute."""
    monkeypatch.setattr(numbers, "REPEATS", 2)
    text = pages.page(found) + pages.left_out(bench_sma.missing(found))
    ours, kept = (re.sub(r"\[\S+, \S+\]", "", page) for page in (text, (RESULTS / "sma.md").read_text()))
    assert ours == kept


def test_every_cell_is_a_run_of_its_own_that_is_what_its_arm_says(found: dict) -> None:
    cells = list(dict.fromkeys(planned.cells(found)))
    assert len({cell.key for cell in cells}) == len(cells)
    for cell in cells:
        settings = {key: value for key, value in cell.settings.items() if key != "augment"}
        config = load_mapping(settings, model_given=True, data_given=True)
        if says := re.search(r"rate ([\d.]+)", cell.arm):
            assert config.update.lr == float(says[1])
        if says := re.search(r"(\d+) epochs$", cell.arm):
            assert config.stop.epochs == config.update.schedule.epochs == int(says[1])
        if says := re.search(r"(\d+) learners$", cell.arm):
            assert config.learners == int(says[1])
        if cell.table in (plan.WHOLE, plan.LONG_WHOLE):
            assert config.update.warmup.epochs == ("warm-up" in cell.arm)


def test_the_figure_has_the_numbers_of_learners(found: dict, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.averaging import sma_plot, sma_scaling

    text = sma_plot.draw(sma_scaling.counts(found, plan.BN), tmp_path / "sma.svg").read_text()
    assert all(f"<!-- {word} -->" in text for word in ("SMA", "16", "256", "accuracy after 8 epochs, %"))
    with pytest.raises(MpibowError, match="no cell of --only learners has run"):
        sma_plot.draw([], tmp_path / "none.svg")


def test_each_cell_is_one_processs(tmp_path: Path) -> None:
    """Branches of one trunk are claimed together, as the trunk is trained once; a claim ends with its process."""
    found = grid(planned, plan.BN, plan.SSGD, 0.003125)
    cells = list(planned.branches(found, plan.BN, (1, 2)))
    one, other = bench_sma.Claim(tmp_path), bench_sma.Claim(tmp_path)
    assert (one.first(cells), other.first(cells)) == (cells[0], cells[10])
    assert (one.first(cells[1:]), other.first(cells[:10])) == (cells[1], None)
    one.drop()
    assert other.first(cells) == cells[0]
    assert one.first(cells[:11]) == cells[10]


def test_results_of_several_processes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "sma.json"
    assert bench_sma.kept(path) == {}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: bench_sma.keep(path, f"cell {n}", {"mean": n}), range(40)))
    assert bench_sma.kept(path) == {f"cell {n}": {"mean": n} for n in range(40)}


def test_a_table_is_refused_before_its_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench_sma.py", "--only", "schedules", "--results", str(tmp_path / "sma.json")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit):
        bench_sma.main()
    assert "--only schedules: needs rates that have not run; run --only rates first" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_refused_with_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, results = tmp_path / "cifar10", tmp_path / "sma.json"
    words = ["--only", "rates", "--cifar", folder, "--results", results, "--runs", tmp_path / "runs"]
    monkeypatch.setattr(sys, "argv", ["bench_sma.py", *map(str, words)])
    with pytest.raises(SystemExit):
        bench_sma.main()
    assert f"python -m mpibow convert cifar --source FOLDER --output {folder}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_arms_go_on_from_one_trunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two learners on made-up images: replicas that are reset stay together, those that nothing pulls do not."""
    monkeypatch.setattr(bench_sma, "BATCHES", 3)

    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (768, 3, 32, 32), np.uint8), np.arange(768, dtype=np.int32) % 10

    class Made:
        train, validation, test = (images, labels), (images[:500], labels[:500]), (images[:500], labels[:500])

    common = planned.settings(plan.BN, 0.003, 1, 2, learners=2, batch_size=64, ema={"half_life": 100})
    trunk = common | {"rule": plan.TRUNK, "stop": {"epochs": 1}}
    cells = [
        planned.Cell("branches", plan.BN, arm, 1, common | {"rule": rule}, trunk)
        for arm, rule in plan.BRANCHES["branches"].items()
        if arm in (plan.REFERENCE, "pulled, alpha 0")
    ]
    reset, free = (bench_sma.run(cell, Made, tmp_path) for cell in cells)
    assert len(re.findall("^continuing .*iteration 6$", "".join(capsys.readouterr()), re.MULTILINE)) == 2
    assert reset["distance"] < 1e-6 < 1e-3 < free["distance"]
    for found in (reset, free):
        assert {"mean", "mean_loss", "anew", "anew_loss", "average", "average_loss"} <= found.keys()
        assert 0 < found["anew_loss"] < 10
        assert found["anew_loss"] != found["mean_loss"]
    assert len(list((tmp_path / "trunk").iterdir())) == 1
    rates = bench_sma.run(planned.Cell("rates", plan.GN, "S-SGD", 1, trunk), Made, tmp_path)
    assert rates.keys() == {"seconds", "gain", "distance", "distance_last", "validation"}
    Made.train = (images[:, :1, :28, :28], labels)
    Made.test = (images[:500, :1, :28, :28], labels[:500])
    warm = planned.settings(plan.LENET, 0.003, 1, 1, learners=2, batch_size=64, **plan.ARMS[plan.WARM])
    lenet = bench_sma.run(planned.Cell("baselines", plan.LENET, plan.WARM, 1, warm), Made, tmp_path)
    assert lenet.keys() >= {"mean", "gain"}
    assert not lenet.keys() & {"anew", "average"}
    assert bench_sma.MODELS.keys() == plan.NETS.keys()
