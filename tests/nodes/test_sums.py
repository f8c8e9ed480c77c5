"""Sums of ranks on several nodes."""

import pytest

from tests.comm.checks import CHECKS
from tests.launching import run
from tests.nodes.hosts import cluster, needs_nodes


@needs_nodes
@pytest.mark.parametrize("ranks", [[1, 1], [2, 2], [2, 1], [1, 1, 1, 1], [2, 1, 3]])
def test_checks(ranks):
    with cluster(len(ranks), "1gbit") as nodes:
        done = run(nodes.mpirun(ranks, "-m", "tests.nodes.test_sums"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all checks passed\n"


def main(communicator, note):
    for check in CHECKS:
        check(communicator)
    if communicator.rank == 0:
        print("all checks passed")


if __name__ == "__main__":
    from mpibow.comm import run_ranks

    run_ranks(main)
