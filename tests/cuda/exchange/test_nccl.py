"""NCCL on a made-up ring: which calls and events come in which order on 2 and 8 ranks, and that nothing ever hangs."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mpibow.comm import Communicator, Single
from mpibow.cuda.device.driver import Refused
from mpibow.cuda.exchange.nccl import CupyRing, Nccl, open_nccl
from mpibow.errors import CommunicationError, install
from tests.comm.threads import on_threads, refused_on
from tests.cuda.device.fakes import FakeEvent, FakeStream, HostArray, Log
from tests.refusals import refuses


class FakeRing(CupyRing):
    """Notes what is enqueued; `wrong` is what NCCL reports when it is asked for the second time."""

    def __init__(self, log: Log, wrong: str = "", raises: str = "") -> None:
        self.log, self._wrong, self._raises, self._asked = log, wrong, raises, 0

    def allreduce(self, address: int, count: int, stream: int) -> None:
        if self._raises:
            raise CommunicationError(self._raises)
        self.log.append(("all-reduce", address, count, stream))

    def broadcast(self, address: int, count: int, root: int, stream: int) -> None:
        self.log.append(("broadcast", address, count, root, stream))

    def problem(self) -> str:
        self._asked += 1
        return self._wrong if self._asked > 1 else ""

    def abort(self) -> None:
        self.log.append(("abort",))

    def close(self) -> None:
        self.log.append(("close",))


def array(size: int = 5) -> HostArray:
    return HostArray(np.zeros(size, np.float32))


def opened(log: Log, host: Communicator | None = None, late: int = 0, **ring: str) -> Nccl:
    stream = FakeStream("sync", log, pointer=99, late=late)
    return Nccl(host or Single(), FakeRing(log, **ring), stream, seconds=0.05)


@pytest.mark.parametrize("ranks", [2, 8])
def test_the_order_of_an_iteration_on_every_rank(ranks):
    """Steps are ready -> the sum on the one synchronisation stream -> the next update waits. Nobody else waits."""

    def body(comm: Communicator) -> tuple[Log, int]:
        log = []
        nccl, total = opened(log, comm), array(1000)
        compute = FakeStream("compute", log, pointer=1)
        for iteration in range(2):
            log.append(("update", iteration))
            nccl.stream.wait(compute.record())
            nccl.allreduce(total, nccl.stream)
            done = nccl.stream.record()
            log.append(("gradients", iteration))
            compute.wait(done)
        return log, total.ptr

    for log, address in on_threads(ranks, body):
        assert log == [
            entry
            for i in range(2)
            for entry in (
                ("update", i),
                ("record", f"compute {i + 1}"),
                ("wait", "sync", f"compute {i + 1}"),
                ("all-reduce", address, 1000, 99),
                ("record", f"sync {i + 1}"),
                ("gradients", i),  # of the next iteration: enqueued before the sum has come
                ("wait", "compute", f"sync {i + 1}"),
            )
        ]


def test_on_a_stream_of_the_callers_nothing_waits():
    log = []
    nccl, mine, own = opened(log), array(), FakeStream("own", log, pointer=7)
    nccl.allreduce(mine, own)
    nccl.broadcast(mine, 1, own)
    assert log == [("all-reduce", mine.ptr, 5, 7), ("broadcast", mine.ptr, 5, 1, 7)]


def test_without_a_stream_it_is_over_on_return():
    log = []
    nccl, mine = opened(log, late=3), array(6)
    nccl.allreduce(mine)
    assert log == [("all-reduce", mine.ptr, 6, 99), ("record", "sync 1")]


def test_host_arrays_and_objects_go_by_the_host():
    def body(comm: Communicator) -> tuple[float, float, list[int], Log]:
        log = []
        nccl = opened(log, comm)
        total, sent = np.ones(2), np.full(2, float(comm.rank))
        nccl.allreduce(total)
        nccl.broadcast(sent, 1)
        nccl.barrier()
        assert (nccl.rank, nccl.size, nccl.local_rank, nccl.local_size) == (comm.rank, 3, comm.rank, 3)
        assert nccl.any_thread
        return total[0], sent[0], nccl.share(comm.rank * 10), log

    assert on_threads(3, body) == [(3.0, 1.0, [0, 10, 20], [])] * 3


def test_ranks_that_call_different_things_are_told_before_nccl_is():
    log = []
    said = refused_on(2, lambda comm: opened(log, comm).allreduce(array(3 + comm.rank)))
    assert (
        said == ["the ranks make different calls: rank 0 all-reduce of 3 float32; rank 1 all-reduce of 4 float32"] * 2
    )
    assert log == []


def test_calls_are_compared_the_first_time_only():
    shared = []

    class Counting(Single):
        def share(self, obj) -> list:
            shared.append(obj)
            return [obj]

    nccl, mine = opened([], Counting()), array()
    for _ in range(3):
        nccl.allreduce(mine, nccl.stream)
    nccl.allreduce(array(6), nccl.stream)
    nccl.broadcast(mine, 0, nccl.stream)
    assert shared == ["all-reduce of 5 float32", "all-reduce of 6 float32", "broadcast from rank 0 of 5 float32"]


def test_an_error_of_nccl_while_it_is_waited_for():
    log = []
    nccl = opened(log, late=10**9, wrong="NCCL_ERROR_REMOTE_ERROR: remote process exited")
    why = "all-reduce of 5 float32: NCCL error: NCCL_ERROR_REMOTE_ERROR: remote process exited"
    with refuses(why, CommunicationError):
        nccl.allreduce(array())
    assert log[-1] == ("abort",)
    with refuses(f"all-reduce of 5 float32: an earlier call has failed: {why}", CommunicationError):
        nccl.allreduce(array())
    nccl.close()
    assert log[-1] == ("abort",)  # what was aborted is not closed


def test_a_gpu_that_has_failed_is_no_hang():
    """After an illegal access CUDA answers every question with it; the event never comes."""

    class Failed:
        @property
        def done(self) -> bool:
            raise Refused("the GPU has failed: cudaErrorIllegalAddress: an illegal memory access was encountered")

    log = []
    nccl = Nccl(Single(), FakeRing(log), FakeStream("sync", log))
    with refuses(
        "the sum of iteration 7: the GPU has failed: cudaErrorIllegalAddress: an illegal memory access was encountered",
        CommunicationError,
    ):
        nccl.wait(Failed(), "the sum of iteration 7")
    assert log == [("abort",)]


def test_a_rank_that_never_comes_is_no_hang():
    log = []
    nccl = opened(log, late=10**9)
    with refuses("the sum of iteration 7: not every rank came within 0.05 seconds", CommunicationError):
        nccl.wait(FakeEvent("sum", log, pending=10**9), "the sum of iteration 7")
    assert log == [("abort",)]


def test_a_call_that_nccl_refuses():
    log = []
    nccl = opened(log, raises="NCCL error: NCCL_ERROR_INVALID_USAGE: invalid usage")
    with refuses("all-reduce of 5 float32: NCCL error: NCCL_ERROR_INVALID_USAGE: invalid usage", CommunicationError):
        nccl.allreduce(array(), nccl.stream)
    assert log == [("abort",)]


def test_an_array_with_gaps():
    nccl = opened([])
    with pytest.raises(AssertionError, match=r"communication needs a contiguous array, got strides \(8,\)"):
        nccl.allreduce(HostArray(np.zeros(8, np.float32)[::2]), nccl.stream)


def test_ends():
    log = []
    opened(log).close()
    opened(log).close(3)
    assert log == [("close",), ("abort",)]


class FakeNccl:
    """CuPy's module nccl."""

    NCCL_SUM, NCCL_FLOAT32 = 0, 7

    class NcclError(RuntimeError):
        pass

    def __init__(self, version: int = 23203, refuse: str = "", late: str = "") -> None:
        self.version, self.refuse, self.late = version, refuse, late
        self.log = []

    def get_version(self) -> int:
        return self.version

    def get_unique_id(self) -> bytes:
        self.log.append(("identity",))
        return b"identity"

    def NcclCommunicator(self, size: int, identity: bytes, rank: int):
        if self.refuse:
            raise self.NcclError(self.refuse)
        self.log.append(("open", size, identity, rank))
        return SimpleNamespace(
            allReduce=lambda *a: self.log.append(("allReduce", *a)),
            broadcast=lambda *a: self.log.append(("broadcast", *a)),
            check_async_error=self.check,
            abort=lambda: self.log.append(("abort",)),
            destroy=lambda: self.log.append(("destroy",)),
        )

    def check(self) -> None:
        if self.late:
            raise self.NcclError(self.late)


def test_rank_0_names_the_communicator():
    modules = [FakeNccl() for _ in range(3)]

    def body(comm: Communicator) -> None:
        nccl = open_nccl(comm, FakeStream("sync", [], pointer=99), modules[comm.rank])
        assert nccl.stream.pointer == 99

    on_threads(3, body)
    assert modules[0].log == [("identity",), ("open", 3, b"identity", 0)]
    assert [module.log for module in modules[1:]] == [[("open", 3, b"identity", rank)] for rank in (1, 2)]


def test_ranks_with_different_versions():
    said = refused_on(2, lambda comm: open_nccl(comm, FakeStream("sync", []), FakeNccl(23203 if comm.rank else 22809)))
    assert said == ["the ranks have NCCL 2.28.9, 2.32.3: install one version on all nodes"] * 2


def test_a_rank_without_nccl(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    said = refused_on(2, lambda comm: open_nccl(comm, FakeStream("sync", []), FakeNccl() if comm.rank == 0 else None))
    reason = "import of cupy.cuda halted; None in sys.modules"
    assert said == [f"rank 1: NCCL: CuPy cannot be loaded ({reason}): {install('cuda')}"] * 2


def test_the_ring_of_cupy():
    module = FakeNccl()
    ring = CupyRing(module, 2, b"identity", 1)
    ring.allreduce(512, 10, 99)
    ring.broadcast(512, 10, 1, 99)
    assert ring.problem() == ""
    ring.abort()
    ring.close()
    assert module.log == [
        ("open", 2, b"identity", 1), ("allReduce", 512, 512, 10, 7, 0, 99), ("broadcast", 512, 512, 10, 7, 1, 99),
        ("abort",), ("destroy",),
    ]  # fmt: skip
    module.late = "NCCL_ERROR_SYSTEM_ERROR: unhandled system error"
    assert ring.problem() == "NCCL_ERROR_SYSTEM_ERROR: unhandled system error"


def test_ranks_that_cannot_connect():
    with refuses(
        "NCCL cannot connect the 2 ranks: NCCL_ERROR_INVALID_USAGE: Duplicate GPU detected; NCCL_DEBUG=INFO shows why; "
        "transport=mpi works without NCCL",
        CommunicationError,
    ):
        CupyRing(FakeNccl(refuse="NCCL_ERROR_INVALID_USAGE: Duplicate GPU detected"), 2, b"identity", 0)
