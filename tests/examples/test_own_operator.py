"""The example of an own operator: its operator is right, and it trains on two ranks."""

from pathlib import Path

import numpy as np

from examples.own_operator import prelu
from mpibow.testing import check_operator
from tests.launching import mpirun, needs_mpi, well

PROGRAM = Path(__file__).parents[2] / "examples/own_operator.py"


def test_its_operator():
    check_operator(prelu, np.array([[1.0, -2.0], [-0.5, 3.0], [0.25, -1.0]]), np.array([0.25, 0.5]))


@needs_mpi
def test_on_two_ranks(tmp_path):
    done = well(mpirun(2, str(PROGRAM), cwd=tmp_path))
    assert float(done.stdout) > 0.8  # chance is 0.1
    assert "NumPy computes prelu, for which" in done.stderr or "computing with NumPy" in done.stderr
