"""Namespaces as nodes: MPI takes them for machines, and one that is lost ends the run on the others."""

import ast
import os
import subprocess

from tests.launching import LIMIT, OPEN_MPI, run, well
from tests.nodes.hosts import cluster, needs_nodes

SHOWN = """
import socket
from mpibow.comm import Mpi
comm = Mpi()
shown = comm.share((socket.gethostname(), comm.local_rank, comm.local_size))
print(repr(shown) if comm.rank == 0 else "", end="")
comm.close()
"""


@needs_nodes
def test_ranks_of_unequal_nodes():
    with cluster(2, "1gbit") as nodes:
        done = well(run(nodes.mpirun([2, 1], "-c", SHOWN)))
    shown = sorted(ast.literal_eval(done.stdout))
    assert shown == [("node1", 0, 2), ("node1", 1, 2), ("node2", 0, 1)]


@needs_nodes
def test_a_lost_node_ends_the_run():
    with cluster(2, "1gbit") as nodes:
        command = nodes.mpirun([1, 1], "-m", "tests.comm.misbehaving", "sums_for_ever")
        with subprocess.Popen(command, env={**os.environ, **OPEN_MPI}, stdout=subprocess.PIPE, text=True) as launcher:
            assert launcher.stdout.readline() == "all are there\n"
            nodes.nodes[1].lose()
            launcher.wait(LIMIT)  # with code 137 or 0, as the launcher comes to notice it
