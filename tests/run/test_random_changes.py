"""Learners that come and go at random where ranks are processes, which share memory to average in."""

import json

import pytest

from mpibow.kernels import find_kernels
from tests.launching import RANKS, mpirun, needs_mpi, well

MEGABYTE = 1 << 20


@needs_mpi
@pytest.mark.skipif(
    find_kernels("auto", "float32", None)[0].name != "onednn",
    reason="oneDNN or numba is not there: pip install -e '.[cpu]'",
)
@pytest.mark.parametrize("rule", ["sma", "crossbow"])
def test_nothing_is_lost_and_memory_is_flat(tmp_path, rule):
    """A learner has 1.4 MiB of weights, gradients and momenta, and there are more than a hundred changes."""
    found = json.loads(
        well(mpirun(RANKS, "-m", "tests.run.random_changes", str(tmp_path), rule)).stdout.splitlines()[-1]
    )
    assert found["changes"] > 100
    assert len(found["grown"]) == RANKS
    assert max(found["grown"]) < 8 * MEGABYTE
