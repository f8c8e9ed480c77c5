"""Ranks that fail in every way we know of: python -m tests.comm.misbehaving CASE, started by test_launch."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from mpibow.comm import Communicator, mpi, run_ranks
from mpibow.errors import EXIT_REQUEUE, DivergedError

LONG = 1000.0  # seconds; no test waits this long


def raises_alone(comm: Communicator) -> None:
    if comm.rank == 1:
        time.sleep(0.3)  # the others sit in the all-reduce
        raise ValueError("only here")
    comm.allreduce(np.ones(5))


def raises_alone_while_others_compute(comm: Communicator) -> None:
    if comm.rank == 1:
        raise DivergedError("loss is nan at iteration 7")
    time.sleep(LONG)


def raises_while_a_thread_of_its_own_waits(comm: Communicator) -> None:
    """As with overlap: the all-reduce sits on a second thread when the first one fails."""
    if comm.rank == 1:
        threading.Thread(target=comm.allreduce, args=(np.ones(5),)).start()
        time.sleep(0.3)
        raise DivergedError("loss is nan at iteration 7")
    time.sleep(LONG)


def raises_with_a_thread_that_never_ends(comm: Communicator) -> None:
    threading.Thread(target=threading.Event().wait).start()
    if comm.rank == 0:
        raise DivergedError("loss is nan at iteration 7")
    comm.barrier()


def raises_alike(comm: Communicator) -> None:
    mpi.FAREWELL = LONG
    raise DivergedError("loss is nan\nin every learner")


def ends_early(comm: Communicator) -> None:
    if comm.rank == 0:
        comm.barrier()


def calls_another_thing(comm: Communicator) -> None:
    mpi.FAREWELL = LONG
    if comm.rank == 0:
        comm.barrier()
    else:
        comm.share(1)


def asks_to_be_requeued(comm: Communicator) -> None:
    print(f"rank {comm.rank} saved")
    sys.exit(EXIT_REQUEUE)


def is_killed(comm: Communicator) -> None:
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.allreduce(np.ones(5))


def is_killed_between_sums(comm: Communicator) -> None:
    arrays = [comm.zeros(1000, "float32") for _ in range(2)]
    for turn in range(200):
        if comm.rank == 1 and turn == 100:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.sum(arrays[turn % 2])


def sums_for_ever(comm: Communicator) -> None:
    """Prints a line once all ranks are there."""
    array = np.ones(10**6)
    comm.allreduce(array)
    if comm.rank == 0:
        print("all are there", flush=True)
    while True:
        comm.allreduce(array)


def loses_its_launcher(comm: Communicator) -> None:
    """Writes the ranks' process ids to a file, and then goes on for ever."""
    everyone = comm.share(os.getpid())
    if comm.rank == 0:
        Path("pids").write_text(" ".join(map(str, everyone)))
        os.kill(os.getppid(), signal.SIGKILL)
    array = comm.zeros(1000, "float32")
    while True:
        comm.sum(array)


def raises_between_sums(comm: Communicator) -> None:
    arrays = [comm.zeros(1000, "float32") for _ in range(2)]
    for turn in range(200):
        if comm.rank == 1 and turn == 100:
            raise DivergedError("loss is nan at iteration 100")
        comm.sum(arrays[turn % 2])


def is_interrupted(comm: Communicator) -> None:
    if comm.rank == 1:
        threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
        comm.barrier()
    time.sleep(LONG)


def ends_well(comm: Communicator) -> None:
    time.sleep(0.2 * comm.rank)  # the first waits for the last
    print(f"rank {comm.rank} ends")


def waits(comm: Communicator) -> None:
    """Prints the share of a core that the waiting ranks use: in a barrier, in an all-reduce, in the last wait."""
    used = []
    for call in (comm.barrier, lambda: comm.allreduce(np.ones(5)), lambda: comm.share(0)):
        if comm.rank == 0:
            time.sleep(0.7)
        cpu, wall = time.process_time(), time.perf_counter()
        call()
        used.append((time.process_time() - cpu) / max(time.perf_counter() - wall, 0.7))  # a late one waits for nobody
    everyone = comm.share(used)
    if comm.rank == 0:
        print(max(max(shares) for shares in everyone[1:]))


if __name__ == "__main__":
    case = globals()[sys.argv[1]]
    run_ranks(lambda communicator, note: case(communicator))
