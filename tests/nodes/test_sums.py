"""Sums of ranks on several nodes."""

import subprocess

import pytest

from tests.comm.checks import CHECKS, leaves_short_sums_that_differ, names_parts_that_differ
from tests.launching import run, well
from tests.nodes.hosts import cluster, needs_nodes


@needs_nodes
@pytest.mark.parametrize("ranks", [[1, 1], [2, 2], [2, 1], [1, 1, 1, 1], [2, 1, 3]])
def test_checks(ranks):
    with cluster(len(ranks), "1gbit") as nodes:
        done = well(run(nodes.mpirun(ranks, "-m", "tests.nodes.test_sums")))
    assert done.stdout == "all checks passed\n"


@needs_nodes
@pytest.mark.parametrize("network", ["eth1", "10.78.0.0/24"])
def test_the_network_is_chosen(network):
    """The checks travel by a second link of the nodes, by its name or its subnet; little does by the first."""
    with cluster(2, "1gbit") as nodes:
        one, two = nodes.nodes
        one.run(f"ip link add eth1 type veth peer name eth1 netns {two.holder.pid}")
        for node, address in ((one, "10.78.0.1/24"), (two, "10.78.0.2/24")):
            node.run(f"ip addr add {address} dev eth1")
            node.run("ip link set eth1 up")
        assert run(nodes.mpirun([1, 1], "-m", "tests.nodes.test_sums", network=network)).returncode == 0
        shown = subprocess.check_output(one.enter("cat", "/proc/net/dev", only_network=True), text=True)
    received = {line.split()[0]: int(line.split()[1]) for line in shown.splitlines() if "eth" in line}
    assert received["eth1:"] > 10 * received["eth0:"]


def main(communicator, note):
    from mpibow.comm import Mpi

    for check in CHECKS:
        check(communicator)
    names_parts_that_differ(Mpi())
    leaves_short_sums_that_differ(Mpi())
    if communicator.rank == 0:
        print("all checks passed")


if __name__ == "__main__":
    from mpibow.comm import run_ranks

    run_ranks(main)
