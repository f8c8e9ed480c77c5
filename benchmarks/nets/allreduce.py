"""The all-reduce by the size of the array, in the manner of the OSU micro-benchmarks: ours beside the MPI library's.

mpirun -np 2 python -m benchmarks.nets.allreduce                                              # one node
python -m tests.nodes.hosts --ranks-per-node 2 --rate 1gbit -- -m benchmarks.nets.allreduce   # two, as root

Microseconds of a call, the mean of ranks; float32. Ours are of arrays in shared memory where a node has any, called on
the main thread, and on the communication thread, which sleeps more.
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mpibow.comm import Communicator, Mpi, run_ranks

SIZES = [2**power for power in range(10, 27, 2)] + [100 * 10**6]  # bytes


def microseconds(comm: Communicator, call: Callable[[], object], seconds: float) -> float:
    call()
    begin = time.perf_counter()
    call()
    (turns,) = comm.share(max(int(seconds / (time.perf_counter() - begin)), 3))[:1]
    comm.barrier()
    begin = time.perf_counter()
    for _ in range(turns):
        call()
    return float(np.mean(comm.share((time.perf_counter() - begin) / turns * 1e6)))


def main(comm: Mpi, note: str) -> None:
    parser = argparse.ArgumentParser(description="Times all-reduces.")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="bytes")
    options = parser.parse_args()
    if comm.rank == 0:
        print(f"{comm.size} ranks, {comm.local_size} on the first node\n")
        print(f"{'bytes':>10}{'main':>12}{'thread':>12}{'library':>12}{'best/ours':>12}")
    with ThreadPoolExecutor(1) as thread:
        for size in (size for size in SIZES if size <= options.largest):
            array, plain = comm.zeros(size // 4, "float32"), np.zeros(size // 4, np.float32)
            calls = (
                lambda array=array: comm.allreduce(array),
                lambda array=array: thread.submit(comm.allreduce, array).result(),
                lambda plain=plain: comm._comm.Allreduce(comm._mpi.IN_PLACE, plain),
            )
            times = [microseconds(comm, call, options.seconds) for call in calls]
            if comm.rank == 0:
                print(
                    f"{size:>10}" + "".join(f"{each:>12.1f}" for each in times) + f"{times[2] / times[0]:>12.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    run_ranks(main)
