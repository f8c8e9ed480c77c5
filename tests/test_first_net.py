"""The program of docs/first_net.md runs, learns, and prints what the page says."""

import re
from pathlib import Path

import pytest

from tests.launching import mpirun, needs_mpi, well

PAGE = (Path(__file__).parents[1] / "docs/first_net.md").read_text()


@pytest.fixture
def program(tmp_path) -> Path:
    text = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    path = tmp_path / "first_net.py"
    path.write_text(text)
    return path


def check(printed: str) -> None:
    accuracy, shape, bias = re.fullmatch(r"(\S+) \((10, 64)\) (\S+)\n", printed).groups()
    assert float(accuracy) > 0.9  # chance is 0.1
    assert shape == "10, 64"
    assert float(bias) == pytest.approx(1.0, abs=1e-3)


@needs_mpi
def test_on_two_ranks(program: Path):
    check(well(mpirun(2, str(program), cwd=program.parent)).stdout)
