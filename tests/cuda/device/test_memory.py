"""A rank's memory on its GPU, and what is said where it does not suffice."""

import pytest

from mpibow.cuda.device.machine import DeviceMemory
from mpibow.errors import DeviceError
from tests.cuda.device.fakes import FakeDriver, gpu
from tests.refusals import refuses

FEWER = "use fewer learners (learners=3) or a smaller batch_size"


def test_blocks_are_held_by_name():
    memory = DeviceMemory(FakeDriver(), gpu(0))
    block = memory.block("the replicas of 4 learners", 1000, FEWER)
    assert (block.nbytes, memory.held, memory.peak) == (1000, 1000, 1000)
    memory.block("slots", 24, FEWER)
    memory.release("the replicas of 4 learners")
    assert (memory.held, memory.peak) == (24, 1024)
    with pytest.raises(AssertionError, match="slots is held already"):
        memory.block("slots", 24, FEWER)


def test_out_of_memory_says_who_has_it():
    driver = FakeDriver(free=70 << 30)
    memory = DeviceMemory(driver, gpu(1))
    memory.block("the replicas of 4 learners", 3 << 29, FEWER)
    memory.block("slots", 200 << 20, FEWER)
    with refuses(
        "GPU 1 (NVIDIA H100, GPU-0001): 100.0 GiB for the arenas of 4 learners do not fit: 68.3 GiB of 80.0 GiB are "
        "free, mpibow holds 1.5 GiB the replicas of 4 learners; 200.0 MiB slots, 10.0 GiB are used by other "
        "programs or by CUDA itself: use fewer learners (learners=3) or a smaller batch_size",
        DeviceError,
    ):
        memory.block("the arenas of 4 learners", 100 << 30, FEWER)
    assert memory.peak == (3 << 29) + (200 << 20)


def test_out_of_memory_at_once():
    with refuses(
        "GPU 0 (NVIDIA H100, GPU-0000): 81.0 GiB for one arena do not fit: 80.0 GiB of 80.0 GiB are free: "
        "use fewer learners (learners=3) or a smaller batch_size",
        DeviceError,
    ):
        DeviceMemory(FakeDriver(), gpu(0)).block("one arena", 81 << 30, FEWER)


def test_locked_memory():
    memory = DeviceMemory(FakeDriver(lockable=1 << 20), gpu(0))
    assert memory.pinned("slots", 4096).nbytes == 4096
    with refuses(
        "slots: the system cannot lock 3.0 MiB of memory for the GPU's copies: raise the limit (ulimit -l unlimited), "
        "or use fewer slots or a smaller batch_size",
        DeviceError,
    ):
        memory.pinned("slots", 3 << 20)
