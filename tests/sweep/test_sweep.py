"""The command, with real runs: cells are kept, skipped, resumed; errors come before the first run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpibow import plot
from mpibow.sweep.__main__ import main
from mpibow.sweep.chart import draw
from mpibow.sweep.folder import CellResult, SweepFolder
from tests.launching import needs_mpi, run, well
from tests.run import tiny
from tests.run.processes import centre, ended, last_iteration, reached, started, wait_for, write_run

SHORT = {"stop": {"epochs": 2}, "evaluate": {"every": 1}, "checkpoint": {"every": "1 epoch"}}


@pytest.fixture
def folder(tmp_path) -> Path:
    write_run(tmp_path, **SHORT)
    return tmp_path


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "mpibow.sweep", *arguments], cwd=folder)


def cells(folder: Path) -> dict[str, CellResult]:
    return SweepFolder(folder / "out").results()


def test_cells_are_kept_and_skipped_and_added(folder: Path):
    first = ["run.yaml", "update.lr=0.02,1e25", "data.validation=0.3", "--output", "out", "--nice", "1"]
    done = well(sweep(folder, *first, "--plot", "sweep.svg"))
    assert "cell 2 of 2: update.lr=1e+25 data.validation=0.3" in done.stderr
    kept = cells(folder)
    good, bad = (kept[name] for name in sorted(kept))
    assert bad.diverged
    assert good.summary["validation_accuracy"] > 0.6  # chance is 0.33
    assert good.summary["run"] == "out/runs/data.validation_0.3__update.lr_0.02"
    assert (good.value("update.lr"), good.value("update.momentum"), good.value("data.test")) == (0.02, 0.9, "data/test")
    found = json.loads((folder / "out/cells/data.validation_0.3__update.lr_0.02.json").read_text())  # other programs do
    assert found["settings"] == {"update.lr": 0.02, "data.validation": 0.3}
    assert found["summary"] == json.loads((folder / good.summary["run"] / "summary.json").read_text())
    lines = done.stdout.splitlines()
    assert lines[0].startswith("| update.lr | runs          | validation accuracy, % | test accuracy, %")
    assert lines[3].startswith("| 1e+25     | 1, 1 diverged |")
    assert lines[-1] == "sweep.svg"
    assert (folder / "sweep.svg").read_bytes().startswith(b"<?xml")
    with tiny.unchanged(folder):
        again = sweep(folder, *first)
    assert (again.returncode, again.stdout) == (0, "\n".join(lines[:-1]) + "\n")
    assert again.stderr == "2 cell(s), 2 of them there already\n"
    more = sweep(folder, "run.yaml", "data.validation=0.3", "update.lr=2e-2,0.05", "--output", "out")
    assert more.stderr.startswith("2 cell(s), 1 of them there already\ncell 2 of 2: data.validation=0.3 update.lr=0.05")
    assert len(cells(folder)) == 3
    assert more.stdout.splitlines()[3].split("|")[1].strip(" *") == "0.05"


@pytest.mark.slow
def test_a_cell_that_was_cut_off_goes_on_to_the_same_bits(folder: Path):
    """By a signal to the sweep, and by a kill of all its processes."""
    words = ["seed=2", "stop={epochs: null, iterations: 3000}", "checkpoint.every=100 iterations", "log.every=20"]
    well(sweep(folder, "run.yaml", *words, "--output", "whole"))
    (run_of_all,) = (folder / "whole/runs").iterdir()
    run_of_it = folder / "out/runs" / run_of_all.name
    command = ["-m", "mpibow.sweep", "run.yaml", *words, "--output", "out"]
    with started(
        1, *command, cwd=folder, pipesize=4096
    ) as child:  # it says more before its end, and waits for a reader
        wait_for(child, lambda: reached(run_of_it / "metrics.jsonl", 200))
        child.send_signal(signal.SIGINT)
        code, said = ended(child)
    assert code == 130, said
    assert cells(folder) == {}
    assert "0 of 1 cells have ended; the same command continues" in said
    at = last_iteration(run_of_it / "metrics.jsonl")
    with started(1, *command, cwd=folder, pipesize=4096) as child:
        wait_for(child, lambda: reached(run_of_it / "metrics.jsonl", at + 200))
    assert cells(folder) == {}
    done = well(run([sys.executable, *command], cwd=folder))
    assert f"continuing out/runs/{run_of_all.name}/checkpoints/" in done.stderr
    assert list(cells(folder)) == [run_of_all.name]
    assert centre(run_of_it, 3000) == centre(run_of_all, 3000)


@needs_mpi
@pytest.mark.slow
def test_a_signal_has_all_ranks_of_a_cell_save(folder: Path):
    """Though mpirun kills its ranks at SIGINT."""
    endless = ["stop={epochs: null, iterations: 1000000000}", "checkpoint={every: 100000000 iterations, best: false}"]
    command = ["-m", "mpibow.sweep", "run.yaml", *endless, "log.every=20", "--ranks", "2", "--output", "out"]
    with started(1, *command, cwd=folder) as child:
        wait_for(child, lambda: any(reached(path, 200) for path in folder.glob("out/runs/*/metrics.jsonl")))
        child.send_signal(signal.SIGINT)
        code, said = ended(child)
    assert code == 130, said
    (saved,) = folder.glob("out/runs/*/checkpoints/iteration-*")
    assert int(saved.name.rpartition("-")[2]) >= 200
    assert cells(folder) == {}


def test_a_run_that_fails_leaves_the_others_be(folder: Path):
    done = sweep(folder, "run.yaml", "data.train=nowhere,data/train", "--output", "out")
    assert done.returncode == 1
    assert "error: nowhere: there is no such folder; convert the data to it first" in done.stderr
    assert "failed: data.train=nowhere: exit code 3; out/runs/data.train_nowhere/log.txt shows more" in done.stderr
    assert done.stderr.splitlines()[-2] == "1 of 2 cells have ended; the same command continues"
    assert list(cells(folder)) == [name for name in cells(folder) if "nowhere" not in name]
    assert len(cells(folder)) == 1


def test_a_run_that_was_lost_is_worth_another_start_three_times(folder: Path, monkeypatch):
    monkeypatch.chdir(folder)
    words = ["run.yaml", "data.train=nowhere,data/train", "--ranks", "2", "--output", "out", "--launcher"]
    assert [main([*words, "sh -c 'exit 8' {ranks}"]) for _ in range(4)] == [8, 8, 8, 1]
    assert main([*words, "sh -c 'kill -KILL $$' {ranks}"]) == 1


@needs_mpi
def test_ranks(folder: Path):
    well(sweep(folder, "run.yaml", "seed=3", "--ranks", "2", "--output", "out"))
    (found,) = cells(folder).values()
    assert found.summary["ranks"] == 2
    refused = sweep(folder, "run.yaml", "seed=3", "--output", "out")
    assert (refused.returncode, refused.stderr) == (
        2, "error: --ranks: the runs of out have 2, got 1; use another --output\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["update.rate=1,2"], 2,
         "update.rate: is not a setting of sgd; it has lr, weight_decay, l1, decay_biases, clip_value, clip_norm, "
             "schedule, warmup, groups, momentum, nesterov, half_life\nin the cell update.rate=1; nothing was run"),
        (["update.lr=0.1,-1"], 2,
         "update.lr: must be a number above 0, got -1\nin the cell update.lr=-1; nothing was run"),
        (["model.hiden=[3]"], 2,
         "model.hiden: is not a setting of mlp; did you mean 'hidden'?\nin the cell model.hiden=[3]; nothing was run"),
        (["learners=1,[1,1]"], 2,
         "learners: must have one number for each of 1 rank(s), got [1, 1]; start 2 ranks or give 1 number(s)\n"
         "in the cell learners=[1, 1]; nothing was run"),
        (["seed=1", "--plot", "a.jpg"], 2, "--plot: must end in .png, .svg, .pdf, got 'a.jpg'"),
        (["out=x"], 2, "out: is set by the sweep for each run; leave it out, and choose a folder with --output DIR"),
    ],
)  # fmt: skip
def test_errors_come_before_the_first_run(
    folder: Path, monkeypatch, capsys,
    arguments, code, message,
):  # fmt: skip
    monkeypatch.chdir(folder)
    with tiny.unchanged(folder):
        assert main(["run.yaml", *arguments, "--output", "out"]) == code
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"error: {message}\n")


def test_rates_of_another_optimiser_are_told_of_once(folder: Path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    cells = ["update.name=sgd,adamw", "seed=1:2"]
    assert main(["run.yaml", *cells, "--output", "out", "--list"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: update.lr: 0.01 in run.yaml was chosen for sgd, and adamw uses it now; ")


def test_a_list_runs_nothing(folder: Path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    with tiny.unchanged(folder):
        assert main(["run.yaml", "seed=1:2", "--output", "out", "--list", "--launcher", "srun -n {ranks}"]) == 0
    assert capsys.readouterr().out.splitlines() == ["missing  seed=1", "missing  seed=2"]


def test_the_table_of_nothing(here: Path, capsys):
    assert main(["--output", "out", "--table"]) == 2
    assert capsys.readouterr().err == "error: --output: out has no cell that has finished\n"
    assert os.listdir(here) == []


def result(lr: float, rule: str, seed: int, accuracy: float) -> CellResult:
    settings = {"update.lr": lr, "rule.name": rule, "seed": seed}
    return CellResult(settings, {}, {"accuracy": accuracy, "seconds": 1.0})


def test_the_plot_shows_the_table():
    results = {
        f"{lr}{rule}{seed}": result(lr, rule, seed, (lr + seed) / 100)
        for lr in (0.1, 1.0, 10.0) for rule in ("sma", "ssgd") for seed in (1, 2)
    }  # fmt: skip
    figure = draw(results)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["test accuracy, %", "seconds"]
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_xscale()) == ("update.lr", "log")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["rule.name sma", "rule.name ssgd"]
    lines = [line for line in axes.get_lines() if line.get_color() == plot.COLOURS[0] and line.get_linestyle() == "-"]
    assert np.allclose(np.asarray(lines[0].get_xydata()), [(0.1, 1.6), (1.0, 2.5), (10.0, 11.5)])
    by_rule = draw(results, ["rule.name"]).axes[0]
    assert [label.get_text() for label in by_rule.get_xticklabels()] == ["sma", "ssgd"]
