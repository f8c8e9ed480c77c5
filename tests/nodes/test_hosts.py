"""Nodes made of namespaces are what MPI takes for machines."""

import ast

from tests.launching import run
from tests.nodes.hosts import cluster, needs_nodes

SHOWN = """
import os, socket
from mpibow.comm import Mpi
comm = Mpi()
shown = comm.share((socket.gethostname(), comm.local_rank, comm.local_size))
print(repr(shown) if comm.rank == 0 else "", end="")
comm.close()
"""


@needs_nodes
def test_ranks_of_unequal_nodes():
    with cluster(2, "1gbit") as nodes:
        done = run(nodes.mpirun([2, 1], "-c", SHOWN))
    assert done.returncode == 0, done.stderr
    shown = sorted(ast.literal_eval(done.stdout))
    assert shown == [("node1", 0, 2), ("node1", 1, 2), ("node2", 0, 1)]
