"""Device arrays by MPI: what is copied and waited for, when it is handed over, and who is asked first."""

import sys
from collections.abc import Callable

import numpy as np
import pytest

from mpibow.comm import Communicator, Single
from mpibow.cuda.exchange import probe as probes
from mpibow.cuda.exchange.nccl import Nccl
from mpibow.cuda.exchange.probe import takes_device_arrays, without_launcher
from mpibow.cuda.exchange.transport import Direct, Staged, Transport, open_transport
from mpibow.errors import CommunicationError
from tests.comm.threads import on_threads
from tests.cuda.device.fakes import FakeDriver, FakeEvent, FakeStream, HostArray, Log
from tests.refusals import refuses


def staged(comm: Communicator, driver: FakeDriver) -> Staged:
    return Staged(comm, FakeStream("sync", driver.log), driver.pinned, driver.copy)


@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_go_through_locked_memory(ranks):
    def body(comm: Communicator) -> tuple[list[float], Log]:
        driver = FakeDriver()
        device = HostArray(np.full(3, comm.rank + 1, np.float32))
        staged(comm, driver).allreduce(device)
        return device.array.tolist(), driver.log

    for total, log in on_threads(ranks, body):
        assert total == [sum(range(1, ranks + 1))] * 3
        assert log == [
            ("pin", 12), ("copy", 12, "sync"), ("synchronise", "sync"), ("copy", 12, "sync"), ("synchronise", "sync"),
        ]  # fmt: skip


def test_the_buffer_grows_and_is_used_again():
    driver = FakeDriver()
    comm = staged(Single(), driver)
    for size in (3, 2, 3, 5):
        comm.allreduce(HostArray(np.ones(size)))
    assert [entry for entry in driver.log if entry[0] == "pin"] == [("pin", 24), ("pin", 40)]


def test_broadcasts_and_the_host_s_own():
    def body(comm: Communicator) -> tuple[list[float], float, list[int]]:
        way = staged(comm, FakeDriver())
        device, host = HostArray(np.full(2, float(comm.rank))), np.full(2, float(comm.rank))
        way.broadcast(device, 1)
        way.allreduce(host)
        way.barrier()
        assert (way.rank, way.size, way.local_rank, way.local_size, way.any_thread) == (
            comm.rank,
            2,
            comm.rank,
            2,
            True,
        )
        return device.array.tolist(), host[0], way.share(comm.rank)

    assert on_threads(2, body) == [([1.0, 1.0], 1.0, [0, 1])] * 2


def test_an_exchange_waits_for_the_steps_first():
    driver = FakeDriver()
    comm = staged(Single(), driver)
    comm.stream.wait(FakeEvent("steps", driver.log))
    comm.allreduce(HostArray(np.ones(2)), comm.stream)
    comm.wait(comm.stream.record())
    assert driver.log == [
        ("wait", "sync", "steps"), ("pin", 16), ("copy", 16, "sync"), ("synchronise", "sync"), ("copy", 16, "sync"),
        ("synchronise", "sync"), ("record", "sync 1"), ("synchronise", "sync 1"),
    ]  # fmt: skip


def test_device_arrays_are_handed_over_when_the_stream_is_done():
    log = []

    class Aware(Single):
        def allreduce(self, array, stream=None) -> None:
            log.append(("all-reduce", array.size))

    class Device(HostArray):
        def reshape(self, size: int) -> HostArray:
            return self

    comm = Direct(Aware(), FakeStream("sync", log))
    comm.allreduce(Device(np.ones(4)))
    comm.allreduce(np.ones(6))
    assert log == [("synchronise", "sync"), ("all-reduce", 4), ("all-reduce", 6)]


def way(
    transport: Transport, *, shared: bool = False, refused: str = "", probe: Callable[[], str] = lambda: ""
) -> tuple[str, str]:
    """The kind of communicator and the note that one rank gets."""

    def nccl(host: Communicator, stream):
        if refused:
            raise CommunicationError(refused)
        return Nccl(host, None, stream)

    driver = FakeDriver()
    comm, note = open_transport(
        Single(), driver, driver.stream(), transport=transport, shared=shared, nccl=nccl, probe=probe
    )
    return type(comm).__name__, note


CRASHED = "MPI crashes on a device array (signal 11)"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"transport": "auto"}, ("Nccl", "")),
        ({"transport": "nccl"}, ("Nccl", "")),
        ({"transport": "mpi"}, ("Direct", "")),
        ({"transport": "staged"}, ("Staged", "")),
        ({"transport": "mpi", "probe": lambda: CRASHED}, ("Staged", f"through host memory: {CRASHED}")),
        (
            {"transport": "auto", "refused": "rank 1: NCCL is not installed"},
            ("Direct", "ranks average by MPI: rank 1: NCCL is not installed"),
        ),
        ({"transport": "auto", "shared": True}, ("Direct", "ranks share a GPU, so they average by MPI")),
        (
            {"transport": "auto", "shared": True, "probe": lambda: CRASHED},
            ("Staged", f"ranks share a GPU, so they average by MPI; through host memory, as {CRASHED}"),
        ),
    ],
)
def test_which_way(options, expected):
    assert way(**options) == expected


def test_ways_that_cannot_be_gone():
    with refuses(
        "transport=nccl: ranks share a GPU, and NCCL allows one rank per GPU: transport=auto", CommunicationError
    ):
        way("nccl", shared=True)
    with pytest.raises(CommunicationError, match="rank 1: NCCL is not installed"):
        way("nccl", refused="rank 1: NCCL is not installed")


def test_all_ranks_take_the_same_way():
    def body(comm: Communicator) -> str:
        driver = FakeDriver()
        probe = (lambda: CRASHED) if comm.rank == 1 else (lambda: "")
        found, _ = open_transport(comm, driver, driver.stream(), transport="mpi", probe=probe)
        return type(found).__name__

    assert on_threads(3, body) == ["Staged"] * 3


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", ""),
        ("import sys; sys.exit('no GPU is visible')", "the probe ended with code 1: no GPU is visible"),
        ("raise SystemExit(4)", "the probe ended with code 4: no word"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "MPI crashes on a device array (signal 11)"),
        ("raise SystemExit(139)", "MPI crashes on a device array (signal 11)"),  # as a shell in between tells it
    ],
)
def test_the_probe_is_a_process_of_its_own(code, said):
    assert takes_device_arrays([sys.executable, "-c", code]) == said


def test_a_probe_that_does_not_end_or_start(monkeypatch):
    monkeypatch.setattr(probes, "SECONDS", 0.2)
    assert takes_device_arrays([sys.executable, "-c", "import time; time.sleep(30)"]) == (
        "the probe did not end within 0.2 seconds"
    )
    assert takes_device_arrays(["/nonexistent"]) == (
        "the probe did not start: [Errno 2] No such file or directory: '/nonexistent'"
    )


def test_the_probe_takes_itself_for_no_rank():
    kept = {
        "PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "CUDA_VISIBLE_DEVICES": "1", "OMPI_MCA_pml": "ucx",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "MV2_USE_CUDA": "1", "UCX_TLS": "cuda",
    }  # fmt: skip
    of_the_job = {
        "OMPI_COMM_WORLD_RANK": "1", "OMPI_MCA_orte_hnp_uri": "x", "OMPI_MCA_ess": "pmi", "PMIX_RANK": "1",
        "PMI_RANK": "1", "SLURM_PROCID": "1", "MV2_COMM_WORLD_RANK": "1", "PRTE_LAUNCHED": "1", "MPI_LOCALRANKID": "0",
    }  # fmt: skip
    assert without_launcher({**kept, **of_the_job}) == kept
