"""Which GPU and which cores every rank takes, and the words for all that can be wrong, on a made-up CUDA."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mpibow.comm import Communicator, Single
from mpibow.cuda.device.find import Found, find_device, has_gpu, near_cores, parse_cores, share_of_cores
from mpibow.errors import DeviceError
from tests.comm.threads import on_threads, refused_on
from tests.cuda.device.fakes import FakeDriver, gpu
from tests.refusals import refuses

NOWHERE = Path("/nonexistent")


def find(comm: Communicator, driver: FakeDriver, **options) -> Found:
    settings = {"host": "node1", "allowed": range(8), "environment": {}, "system": NOWHERE, **options}
    return find_device(driver, comm, **settings)


def found_on(ranks: int, driver: Callable[[int], FakeDriver], **options) -> list[Found]:
    return on_threads(ranks, lambda comm: find(comm, driver(comm.rank), **options))


def test_one_rank_takes_the_first_gpu_and_opens_it():
    driver = FakeDriver([gpu(0), gpu(1)])
    assert find(Single(), driver) == Found(gpu(0), tuple(range(8)), shared=False)
    assert driver.log == [("use", 0)]


def test_where_all_are_visible_each_takes_that_of_its_local_rank():
    found = found_on(4, lambda _: FakeDriver([gpu(i) for i in range(4)]))
    assert [one.gpu.index for one in found] == [0, 1, 2, 3]
    assert not any(one.shared for one in found)


def test_where_each_sees_one_it_takes_that():
    found = found_on(4, lambda rank: FakeDriver([gpu(0, uuid=f"GPU-{rank}")]))
    assert [(one.gpu.index, one.gpu.uuid) for one in found] == [(0, f"GPU-{rank}") for rank in range(4)]


def test_two_ranks_on_one_gpu():
    with refuses(
        "ranks 0 and 1 on node1 all compute on GPU 0 (NVIDIA H100, GPU-0): start one rank a GPU, let each see its own "
        "(CUDA_VISIBLE_DEVICES, or the batch system's GPUs per task), or set share_gpu=true: they average by MPI",
        DeviceError,
    ):
        found_on(3, lambda rank: FakeDriver([gpu(0, uuid=f"GPU-{rank // 2}")]))


def test_ranks_may_share():
    found = found_on(4, lambda _: FakeDriver([gpu(0), gpu(1)]), share_gpu=True)
    assert [(one.gpu.index, one.shared) for one in found] == [(0, True), (1, True), (0, True), (1, True)]


def test_more_ranks_than_gpus():
    with refuses(
        "rank 0: device cuda: 3 ranks on this node and 2 GPUs visible: start 2 ranks a node, or set share_gpu=true",
        DeviceError,
    ):
        found_on(3, lambda _: FakeDriver([gpu(0), gpu(1)]))


def test_one_rank_that_fails_fails_all():
    said = refused_on(2, lambda comm: find(comm, FakeDriver([gpu(0), gpu(1)], driver=13000 * (comm.rank == 0))))
    assert all(each.startswith("rank 1: device cuda: no NVIDIA driver here: ") for each in said)


@pytest.mark.parametrize(
    ("driver", "environment", "said"),
    [
        (
            FakeDriver(driver=0), {},
            "device cuda: no NVIDIA driver here: install one, in a container start it with --gpus, "
            "or compute without one: device=onednn",
        ),
        (
            FakeDriver(driver=12040), {},
            "device cuda: the NVIDIA driver supports CUDA up to 12.4, CuPy was built for 13.2: install a newer driver, "
            "or pip install -e '.[cuda12]'",
        ),
        (
            FakeDriver([]), {"CUDA_VISIBLE_DEVICES": ""},
            "device cuda: no GPU is visible (CUDA_VISIBLE_DEVICES is ''): ask the batch system for one, "
            "or compute without one: device=onednn",
        ),
        (
            FakeDriver([]), {},
            "device cuda: no GPU is visible: ask the batch system for one, or compute without one: device=onednn",
        ),
        (
            FakeDriver(refusal="cudaErrorSystemDriverMismatch: system has unsupported display driver"), {},
            "device cuda: CUDA cannot start: cudaErrorSystemDriverMismatch: system has unsupported display driver",
        ),
        (
            FakeDriver([gpu(0, name="Tesla T4", capability=(7, 5))]), {},
            "GPU 0 (Tesla T4, GPU-0000): its compute capability is 7.5, mpibow needs 8.0 or more: use another GPU, "
            "or compute without one: device=onednn",
        ),
        (
            FakeDriver([gpu(0, mode="prohibited")]), {},
            "GPU 0 (NVIDIA H100, GPU-0000): its compute mode is prohibited: nvidia-smi -i GPU-0000 -c DEFAULT, as root",
        ),
        (
            FakeDriver([gpu(0, mode="exclusive")], busy=(0,)), {},
            "GPU 0 (NVIDIA H100, GPU-0000): its compute mode is exclusive and another process uses it: end that "
            "process, or nvidia-smi -i GPU-0000 -c DEFAULT, as root",
        ),
        (
            FakeDriver(busy=(0,)), {},
            "GPU 0 (NVIDIA H100, GPU-0000): cannot be opened: cudaErrorDevicesUnavailable: CUDA-capable device(s) "
            "is/are busy or unavailable",
        ),
    ],
)  # fmt: skip
def test_what_can_be_wrong(driver: FakeDriver, environment: Mapping[str, str], said):
    with refuses(said, DeviceError):
        find(Single(), driver, environment=environment)


@pytest.mark.parametrize("driver", [13000, 13020, 13030, 14000])
def test_a_driver_of_the_same_major_version_will_do(driver):
    assert find(Single(), FakeDriver(driver=driver)).gpu == gpu(0)


def test_cores_near_the_gpus_are_divided(tmp_path):
    """Two GPUs on each of two sockets."""
    for i in range(4):
        folder = tmp_path / "bus/pci/devices" / gpu(i).bus
        folder.mkdir(parents=True)
        (folder / "local_cpulist").write_text("0-3\n" if i < 2 else "4-7\n")
    found = found_on(4, lambda _: FakeDriver([gpu(i) for i in range(4)]), system=tmp_path)
    assert [one.cores for one in found] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    bound = found_on(4, lambda _: FakeDriver([gpu(i) for i in range(4)]), system=tmp_path, allowed=[1, 4, 5, 6])
    assert [one.cores for one in bound] == [(1, 4, 5, 6), (1, 4, 5, 6), (4,), (5, 6)]


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0-3,8,10-11\n", [0, 1, 2, 3, 8, 10, 11]),
        ("5", [5]),
        ("2,1,1-2", [1, 2]),
        ("", []),
        ("all", []),
        ("1-", [1]),
        ("1-x", []),
    ],
)
def test_lists_of_cores(text, cores):
    assert parse_cores(text) == cores


def test_an_address_as_cuda_or_nvml_writes_it(tmp_path):
    folder = tmp_path / "bus/pci/devices/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "local_cpulist").write_text("0-1,4-5\n")
    for bus in ("0000:3b:00.0", "00000000:3B:00.0"):
        assert near_cores(bus, tmp_path) == [0, 1, 4, 5]
    assert near_cores("0000:5e:00.0", tmp_path) == []


@given(
    allowed=st.sets(st.integers(0, 40), min_size=1),
    near=st.sets(st.integers(0, 40)),
    ranks=st.integers(1, 8),
)
def test_ranks_beside_one_another_never_share_a_core_where_there_are_enough(allowed, near, ranks):
    shares = [share_of_cores(sorted(allowed), [sorted(near)] * ranks, rank) for rank in range(ranks)]
    both = allowed & near
    if both and len(both) >= ranks:
        assert sorted(core for share in shares for core in share) == sorted(both)
        assert all(shares)
    else:
        assert shares == [sorted(allowed)] * ranks


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], False),
        (["dev/nvidiactl"], False),
        (["dev/nvidia0"], True),
        (["0x10de", "0x030200"], True),
        (["0x10de", "0x040300"], False),  # its sound
        (["0x8086", "0x030000"], False),
    ],
)
def test_a_gpu_is_there_with_or_without_its_driver(tmp_path, files, expected):
    device = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    for name, text in zip(("vendor", "class"), files, strict=False):
        (tmp_path / text if text.startswith("dev") else device / name).write_text(f"{text}\n")
    assert has_gpu(tmp_path) == expected
