"""A line before a node's ranks import mpibow all at once, which takes long where they are many."""

import os
import sys

CROWDED = 4  # ranks for each core
LAUNCHERS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), ("PMI_RANK", "MPI_LOCALNRANKS"))


def warn_of_crowd() -> None:
    """By what launchers set, on rank 0: MPI has not started yet."""
    cores = os.cpu_count() or 1
    for rank, local_size in LAUNCHERS:
        ranks = int(os.environ.get(local_size, 0))
        if os.environ.get(rank) == "0" and ranks > CROWDED * cores:
            print(f"{ranks} ranks start on this node's {cores} cores: each needs a second of a core", file=sys.stderr)
