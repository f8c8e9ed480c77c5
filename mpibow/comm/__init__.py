"""Communication between ranks: one interface, and its implementations for one process and for MPI."""

from .binding import allowed_cores, binding_warning
from .communicator import Communicator, Single, checksum
from .launch import guarded, open_communicator, run_ranks
from .mpi import Mpi
