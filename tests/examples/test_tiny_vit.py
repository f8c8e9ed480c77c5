"""The example of a transformer trains on two ranks, and its gradient is right."""

from __future__ import annotations

from pathlib import Path

from examples.tiny_vit import net
from mpibow.testing import check_operator
from tests.launching import mpirun, needs_mpi

PROGRAM = Path(__file__).parents[2] / "examples/tiny_vit.py"


def test_its_gradient() -> None:
    check_operator(net, (2, 1, 8, 8), float32=1e-3)


def test_it_has_forty_lines() -> None:
    assert len([line for line in PROGRAM.read_text().splitlines() if line.strip()]) <= 40


@needs_mpi
def test_on_two_ranks(tmp_path: Path) -> None:
    done = mpirun(2, str(PROGRAM), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.7  # chance is 0.1
