"""Communication between ranks: one interface, and its implementations for one process and for MPI."""

from mpibow.comm.binding import allowed_cores, binding_warning
from mpibow.comm.communicator import Communicator, Single, checksum
from mpibow.comm.launch import guarded, open_communicator, run_ranks
from mpibow.comm.mpi import Mpi

__all__ = [
    "Communicator",
    "Mpi",
    "Single",
    "allowed_cores",
    "binding_warning",
    "checksum",
    "guarded",
    "open_communicator",
    "run_ranks",
]
