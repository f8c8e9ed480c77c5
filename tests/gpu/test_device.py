"""CUDA through CuPy: that the driver does what its seam says, and what is said where it refuses."""

import re

import numpy as np
import pytest

from mpibow.comm import Single
from mpibow.cuda.device.driver import OutOfMemory
from mpibow.cuda.device.find import find_device
from mpibow.cuda.device.machine import DeviceMemory
from mpibow.errors import DeviceError
from tests.gpu import opened

pytestmark = opened.needs_gpu()


@pytest.fixture
def driver():
    return opened.device().driver


def test_what_a_gpu_is(driver):
    gpu = driver.describe(0)
    assert gpu.name.startswith("NVIDIA") or "GPU" in gpu.name or gpu.name
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu.uuid)
    assert re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0", gpu.bus)
    assert gpu.capability >= (8, 0)
    free, total = driver.memory()
    assert 0 < free <= total <= gpu.memory * 1.01
    assert driver.version() // 1000 >= driver.runtime() // 1000
    assert len({driver.describe(i).uuid for i in range(driver.count())}) == driver.count()


def test_a_single_rank_finds_it(driver):
    found = find_device(driver, Single(), host="here", allowed=[0, 1], share_gpu=False)
    assert found.gpu == driver.describe(0)
    assert set(found.cores) <= {0, 1}
    assert not found.shared


def test_memory_is_zeroed_aligned_and_there_and_back(driver):
    block, stream = driver.allocate(1 << 20), driver.stream()
    assert int(block.data.ptr) % 256 == 0
    first, sent, back = (driver.pinned(1 << 20) for _ in range(3))
    driver.copy(first, block, stream)
    sent[:] = np.random.default_rng(0).integers(0, 256, sent.size, dtype=np.uint8)
    driver.copy(block, sent, stream)
    driver.copy(back, block, stream)
    stream.synchronise()
    assert not first.any()
    np.testing.assert_array_equal(back, sent)


def test_events_order_streams_and_tell_time(driver):
    """What one stream copies, another reads behind its event."""
    one, two = driver.stream(), driver.stream(-1)
    assert one.pointer != two.pointer != 0
    block, sent, back = driver.allocate(1 << 26), driver.pinned(1 << 26), driver.pinned(1 << 26)
    for value in range(1, 4):
        sent[:] = value
        begin = one.record(timed=True)
        driver.copy(block, sent, one)
        end = one.record(timed=True)
        two.wait(end)
        driver.copy(back, block, two)
        two.synchronise()
        assert (back == value).all()
        assert end.done
        assert 0.1 < one.milliseconds(begin, end) < 1000  # 64 MiB
    assert one.done


def test_a_graph_runs_when_it_is_launched(driver):
    stream, block = driver.stream(), driver.allocate(1 << 16)
    sent, back = driver.pinned(1 << 16), driver.pinned(1 << 16)

    def enqueue() -> None:
        driver.copy(block, sent, stream)
        driver.copy(back, block, stream)

    sent[:] = 7
    graph = stream.capture(enqueue)
    stream.synchronise()
    assert not back.any()  # nothing of it has run
    for value in (7, 9):
        sent[:] = value
        graph.launch(stream)
        stream.synchronise()
        assert (back == value).all()


def test_a_capture_that_fails_has_ended(driver):
    stream = driver.stream()

    def enqueue() -> None:
        raise ValueError("not this")

    with pytest.raises(ValueError, match="not this"):
        stream.capture(enqueue)
    block, back = driver.allocate(64), driver.pinned(64)
    driver.copy(back, block, stream)
    stream.synchronise()


def test_what_does_not_fit(driver):
    gpu = driver.describe(0)
    with pytest.raises(OutOfMemory):
        driver.allocate(2 * gpu.memory)
    memory = DeviceMemory(driver, gpu)
    memory.block("the weights", 3 << 20, "")
    with pytest.raises(DeviceError, match=r" do not fit: .* mpibow holds 3\.0 MiB the weights"):
        memory.block("the arenas of 4 learners", 2 * gpu.memory, "use fewer learners")
    driver.allocate(1 << 20)  # it still works
