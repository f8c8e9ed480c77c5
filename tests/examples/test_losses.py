"""Examples with losses and metrics beside their nets are short, and learn, on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launching import mpirun, needs_mpi

FOLDER = Path(__file__).parents[2] / "examples"
LEAST = {  # what it must print at least
    "multi_label": 0.9,  # f1; all labels always given come to 0.6
    "two_outputs": 0.75,  # an accuracy; chance is 0.5
    "early_stopping": 0.5,  # a share; always giving the mean comes to 0.2
}


@pytest.mark.parametrize("name", LEAST)
def test_it_has_25_lines(name: str) -> None:
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 25


@needs_mpi
@pytest.mark.parametrize("name", LEAST)
def test_it_learns(name: str, tmp_path: Path) -> None:
    done = mpirun(2, str(FOLDER / f"{name}.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    value, *rest = done.stdout.split()
    assert LEAST[name] <= float(value) <= 1.0
    if name == "early_stopping":
        assert rest == ["callback", "EarlyStopping"]
