"""One suite over all communicators; and what the threads, which stand in for MPI in other tests, do when one fails."""

import time

import numpy as np
import pytest

from mpibow.comm import Communicator, Single, checksum
from mpibow.errors import CommunicationError
from tests.comm.checks import CHECKS
from tests.comm.threads import on_threads, threads
from tests.launching import RANKS, mpirun, needs_mpi, well


@pytest.mark.parametrize("check", CHECKS)
def test_single(check):
    check(Single())


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("check", CHECKS)
def test_threads(check, size):
    on_threads(size, check)


@needs_mpi
@pytest.mark.parametrize("size", sorted({2, 3, RANKS}))
def test_mpi(size):
    assert well(mpirun(size, "-m", "tests.comm.checks")).stdout.strip() == f"all checks passed on {[size] * size}"


def test_a_failed_rank_ends_those_that_wait():
    others = []

    def body(comm: Communicator) -> None:
        if comm.rank == 1:
            time.sleep(0.05)
            raise ValueError("its own reason")
        try:
            comm.allreduce(np.ones(3))
        except CommunicationError as error:
            others.append(str(error))
            raise

    with pytest.raises(ValueError, match="its own reason"):
        on_threads(3, body)
    why = "all-reduce of 3 float64: rank 1 has failed with code 1"
    assert sorted(others) == [f"rank 0: {why}", f"rank 2: {why}"]


def test_a_rank_that_never_comes_is_no_hang():
    with pytest.raises(CommunicationError, match=r"rank 0: share: not every rank came within 0\.1 seconds"):
        threads(2, seconds=0.1)[0].share(1)


def test_checksums_are_equal_where_the_bits_are():
    array = np.random.default_rng(1).standard_normal((30, 7)).astype(np.float32)
    assert checksum(array) == checksum(array.copy()) == checksum(np.asfortranarray(array))
    assert checksum(np.array([0.0])) != checksum(np.array([-0.0]))
    assert 0 <= checksum(array) < 2**32
    assert checksum(np.frombuffer(b"123456789", np.uint8)) == 0xCBF43926  # CRC-32's check value
    for byte in (0, 400, array.nbytes - 1):
        for bit in range(8):
            flipped = array.copy()
            flipped.reshape(-1).view(np.uint8)[byte] ^= 1 << bit
            assert checksum(flipped) != checksum(array)
