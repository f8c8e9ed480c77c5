"""What a way of device arrays between ranks must do, on every rank: python -m tests.gpu.transports share WAY...

A way is nccl, mpi or staged; `share` is 1 where ranks may have one GPU together. Run under mpirun.
"""

import os
import sys

import numpy as np

from mpibow.comm import Communicator, checksum, run_ranks
from mpibow.cuda.device.cupy_driver import Driver, load_cupy
from mpibow.cuda.device.find import find_device
from mpibow.cuda.exchange.transport import open_transport

COUNT = 100_003  # no multiple of anything


def check(way, cupy) -> None:
    """Sums and broadcasts of device arrays, also beside other work, and of host arrays."""
    everyone = [np.random.default_rng(rank).standard_normal(COUNT).astype(np.float32) for rank in range(way.size)]
    sums = []
    for _ in range(2):
        array = cupy.asarray(everyone[way.rank])
        cupy.cuda.runtime.deviceSynchronize()
        way.allreduce(array)
        sums.append(cupy.asnumpy(array))
    np.testing.assert_allclose(sums[0], np.sum(everyone, axis=0, dtype=np.float64), rtol=1e-5, atol=1e-4)
    assert len({bits for values in way.share([checksum(array) for array in sums]) for bits in values}) == 1
    for root in range(way.size):
        array = cupy.full((7, 3), 10.0 + way.rank, cupy.float32)
        cupy.cuda.runtime.deviceSynchronize()
        way.broadcast(array, root)
        assert (cupy.asnumpy(array) == 10.0 + root).all()
    host = np.full(5, 1.0 + way.rank)
    way.allreduce(host)
    assert (host == sum(range(1, way.size + 1))).all()
    overlapped(way, cupy)


def overlapped(way, cupy) -> None:
    """Behind an event of another stream, and before that stream reads it."""
    driver = Driver()
    compute, total = driver.stream(), cupy.zeros(COUNT, cupy.float32)
    cupy.cuda.runtime.deviceSynchronize()  # zeros come by CuPy's own stream, which `compute` does not wait for
    for step in range(1, 4):
        with compute.stream:
            total[...] = step * (way.rank + 1)
        way.stream.wait(compute.record())
        way.allreduce(total, way.stream)
        compute.wait(way.stream.record())
        with compute.stream:
            read = total + 1
        compute.synchronise()
        assert (cupy.asnumpy(read) == 1 + step * sum(range(1, way.size + 1))).all()
    way.wait(way.stream.record())


def main(host: Communicator, note: str) -> int:
    share, *ways = sys.argv[1:]
    driver, cupy = Driver(), load_cupy()
    cores = os.sched_getaffinity(0)
    found = find_device(driver, host, share_gpu=share == "1", host=os.uname().nodename, allowed=sorted(cores))
    for name in ways:
        way, said = open_transport(host, driver, driver.stream(), transport=name, shared=found.shared)
        check(way, cupy)
        host.barrier()
        if host.rank == 0:
            print(f"{name}: {type(way).__name__} on {host.size} rank(s){': ' + said if said else ''}")
    return 0


if __name__ == "__main__":
    run_ranks(main)
