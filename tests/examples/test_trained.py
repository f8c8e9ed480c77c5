"""The examples of trained nets, which are taken up again, are short and run alone and on two ranks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launching import ROOT, mpirun, needs_mpi

FOLDER = ROOT / "examples"
LEAST = {"fine_tune": 0.85, "load_and_predict": 0.75, "resume": 0.75}  # accuracies; chance is 0.5, 0.1 and 0.1
Program = Callable[..., subprocess.CompletedProcess[str]]


def alone(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / f"{name}.py"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=720)


def on_two_ranks(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return mpirun(2, str(FOLDER / f"{name}.py"), *arguments, cwd=cwd)


@pytest.mark.parametrize("name", LEAST)
def test_it_is_short(name: str) -> None:
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 25


@pytest.mark.parametrize("program", [alone, pytest.param(on_two_ranks, marks=pytest.mark.mpi)])
@pytest.mark.parametrize("name", LEAST)
@needs_mpi
def test_it_runs(name: str, program: Program, tmp_path: Path) -> None:
    done = program(name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert LEAST[name] < float(done.stdout) <= 1


@pytest.mark.parametrize("program", [alone, pytest.param(on_two_ranks, marks=pytest.mark.mpi)])
@needs_mpi
def test_each_start_continues_where_the_last_one_ended(program: Program, tmp_path: Path) -> None:
    first, second = (program("resume", epochs, cwd=tmp_path) for epochs in ("1", "2"))
    assert "continuing" not in first.stderr
    assert "continuing parts/net-" in second.stderr
    assert float(first.stdout) < float(second.stdout)
    assert len(list((tmp_path / "parts").iterdir())) == 1


def test_the_body_is_loaded_and_the_head_is_new(tmp_path: Path) -> None:
    log = alone("fine_tune", cwd=tmp_path).stderr
    assert "weights from the program's arrays: 12 of the net's 14 weights and statistics are loaded" in log
    assert "frozen until epoch 5: 4,896 weights (body.conv1.weight, " in log
    assert "epoch 5.00: 4,896 weights" in log
