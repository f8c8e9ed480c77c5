"""What bench_sma.py runs and makes of it, on figures that a hand can check; nothing is trained here."""

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.averaging import (
    bench_sma,
    sma_arms as plan,
    sma_cells as planned,
    sma_numbers as numbers,
    sma_page as pages,
)
from mpibow.config import load_mapping
from mpibow.errors import MpibowError


def test_a_bootstrap_interval_is_that_of_the_mean():
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


RESULTS = Path(__file__).parents[2] / "benchmarks/results"


@pytest.fixture(scope="module")
def found() -> dict:
    """All that has run."""
    return json.loads((RESULTS / "sma.json").read_text())


def test_the_page_is_made_of_what_is_kept(found, monkeypatch):
    """But for its intervals, which take a minute."""
    monkeypatch.setattr(numbers, "REPEATS", 2)
    text = pages.page(found) + pages.left_out(bench_sma.missing(found))
    ours, kept = (re.sub(r"\[\S+, \S+\]", "", page) for page in (text, (RESULTS / "sma.md").read_text()))
    assert ours == kept


def test_every_cell_is_a_run_of_its_own_that_is_what_its_arm_says(found):
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


def test_the_figure_has_the_numbers_of_learners(found, tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks.averaging import sma_plot, sma_scaling

    text = sma_plot.draw(sma_scaling.counts(found, plan.BN), tmp_path / "sma.svg").read_text()
    assert all(f"<!-- {word} -->" in text for word in ("SMA", "16", "256", "accuracy after 8 epochs, %"))
    with pytest.raises(MpibowError, match="no cell of --only learners has run"):
        sma_plot.draw([], tmp_path / "none.svg")


def test_a_table_is_refused_before_its_rates(tmp_path, monkeypatch, capsys):
    words = ["bench_sma.py", "--only", "schedules", "--results", str(tmp_path / "sma.json")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit):
        bench_sma.main()
    assert "--only schedules: needs rates that have not run; run --only rates first" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_refused_with_the_command_that_makes_it(tmp_path, monkeypatch, capsys):
    folder, results = tmp_path / "cifar10", tmp_path / "sma.json"
    words = ["--only", "rates", "--cifar", folder, "--results", results, "--runs", tmp_path / "runs"]
    monkeypatch.setattr(sys, "argv", ["bench_sma.py", *map(str, words)])
    with pytest.raises(SystemExit):
        bench_sma.main()
    assert f"python -m mpibow convert cifar --source FOLDER --output {folder}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
