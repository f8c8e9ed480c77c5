"""Communication between ranks: one interface, and its implementations for one process, several threads, and MPI."""

from mpibow.comm.binding import allowed_cores, binding_warning
from mpibow.comm.communicator import Communicator, Single, checksum
from mpibow.comm.launch import guarded, open_communicator, run_ranks
from mpibow.comm.mpi import Mpi
from mpibow.comm.threads import on_threads, threads

__all__ = [
    "Communicator",
    "Mpi",
    "Single",
    "allowed_cores",
    "binding_warning",
    "checksum",
    "guarded",
    "on_threads",
    "open_communicator",
    "run_ranks",
    "threads",
]
