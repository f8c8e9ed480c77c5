"""The example of an own step: its step is right, and it trains on two ranks."""

from __future__ import annotations

from pathlib import Path

from examples.own_step import Bounded
from mpibow.testing import check_update
from tests.launching import mpirun, needs_mpi

PROGRAM = Path(__file__).parents[2] / "examples/own_step.py"


def test_its_step() -> None:
    assert "numpy" in check_update(Bounded(lr=0.002))


def test_it_is_short() -> None:
    assert len([line for line in PROGRAM.read_text().splitlines() if line.strip()]) <= 25


@needs_mpi
def test_on_two_ranks(tmp_path: Path) -> None:
    done = mpirun(2, str(PROGRAM), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.85  # chance is 0.1
