"""Examples of one's own data are short, and learn, on two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launching import mpirun, needs_mpi

FOLDER = Path(__file__).parents[2] / "examples"
PRINTED = {  # the least and most that it may print
    "torch_dataset": (0.8, 1.0),  # an accuracy; chance is 0.1
    "own_cnn_folder": (0.8, 1.0),  # an accuracy; chance is 0.1
    "regression_table": (0.0, 0.3),  # a loss; 1 is that of the mean
    "segmentation": (0.0, 0.3),  # a loss; 0.37 is that of the classes' frequencies
    "language_model": (0.0, 1.0),  # a loss; 2.6 is that of the characters' frequencies
}


@pytest.mark.parametrize("name", PRINTED)
def test_it_has_25_lines(name: str) -> None:
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 25


@needs_mpi
@pytest.mark.parametrize("name", PRINTED)
def test_it_learns(name: str, tmp_path: Path) -> None:
    done = mpirun(2, str(FOLDER / f"{name}.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    least, most = PRINTED[name]
    assert least <= float(done.stdout.split()[-1]) <= most
