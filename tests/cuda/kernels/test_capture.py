"""What an executor, cuDNN and a timer call, and in which order, on streams that are made up."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from mpibow.cuda.device.driver import Refused
from mpibow.cuda.device.machine import DeviceFull
from mpibow.cuda.kernels import cudnn as binding, graphs
from mpibow.cuda.kernels.cudnn import Cudnn, DeviceTimer, Enqueue, Handles, random_bytes, seconds_of, together
from mpibow.cuda.kernels.kept import Made
from mpibow.cuda.kernels.launcher import Executor
from mpibow.cuda.kernels.operands import PRECISIONS
from mpibow.cuda.kernels.plans import Executable
from mpibow.cuda.kernels.specs import Cast, NormBackward
from mpibow.errors import DeviceError
from tests.cuda.device.fakes import FakeDriver, FakeStream, HostArray, Log
from tests.refusals import refuses

TF32 = PRECISIONS["tf32"]
SPEC = Cast(48, "float32", "float16", TF32)


def kernel(name: str) -> Enqueue:
    return lambda stream: stream.enqueue(name)


def executor(log: Log, *, graphs: bool) -> Executor:
    return Executor("learner 0", [kernel("forward"), kernel("backward")], FakeStream("s0", log), graphs=graphs)


def test_it_is_captured_once_and_launched_ever_after():
    log = []
    learner = executor(log, graphs=True)
    learner.prepare()
    assert log == [("forward", "s0"), ("backward", "s0"), ("synchronise", "s0"), ("captured", "s0", 2)]
    log.clear()
    for _ in range(3):
        learner.run()
    assert log == [
        ("launch", "s0", 2), ("record", "s0 1"),
        ("launch", "s0", 2), ("record", "s0 2"),
        ("launch", "s0", 2), ("record", "s0 3"),
    ]  # fmt: skip
    assert not [entry for entry in log if entry[0] == "synchronise"]


def test_without_graphs_the_same_runs_are_enqueued():
    log = []
    learner = executor(log, graphs=False)
    learner.prepare()
    log.clear()
    event = learner.run()
    assert log == [("forward", "s0"), ("backward", "s0"), ("record", "s0 1")]
    assert event.name == "s0 1"


def test_it_is_prepared_first():
    with pytest.raises(AssertionError, match="learner 0 is run before it is prepared"):
        executor([], graphs=True).run()


def test_a_profiler_sees_every_launch():
    log = []

    @contextmanager
    def range_(name: str) -> Iterator[None]:
        log.append(("begin", name))
        yield
        log.append(("end", name))

    learner = Executor("learner 3", [kernel("forward")], FakeStream("s3", log), ranges=range_)
    learner.prepare()
    log.clear()
    learner.run()
    assert log == [("begin", "learner 3"), ("launch", "s3", 1), ("record", "s3 1"), ("end", "learner 3")]


class FakePlanner:
    """Plans that note what they are run on."""

    def __init__(self, workspace: int) -> None:
        self.calls = []
        self.workspace = workspace

    def plan(self, spec) -> Executable:
        def execute(pack, workspace: int, handle) -> None:
            self.calls.append((spec.kind, pack, workspace, handle))

        return Executable(spec, Made(b"", "eng0", self.workspace), SimpleNamespace(execute=execute))


@pytest.fixture
def cudnn(monkeypatch) -> Log:
    log = []
    numbers = iter(range(100))

    def create() -> str:
        log.append(("create", name := f"handle {next(numbers)}"))
        return name

    fake = SimpleNamespace(
        cudnnGraphNotSupportedError=KeyError,
        create_handle=create,
        set_stream=lambda handle, pointer: log.append(("stream", handle, pointer)),
        backend_version_string=lambda: "9.28.0",
    )
    for module in (binding, graphs):
        monkeypatch.setattr(module, "load_cudnn", lambda: fake)
    return log


def test_a_handle_a_stream(cudnn: Log):
    handles = Handles()
    first, second = FakeStream("a", [], pointer=10), FakeStream("b", [], pointer=20)
    assert [handles.of(stream) for stream in (first, second, first)] == ["handle 0", "handle 1", "handle 0"]
    assert cudnn == [
        ("create", "handle 0"), ("stream", "handle 0", 10), ("create", "handle 1"), ("stream", "handle 1", 20),
    ]  # fmt: skip


def test_a_handle_that_is_refused(cudnn: Log, monkeypatch):
    def refuse() -> None:
        raise RuntimeError("CUDNN_STATUS_NOT_INITIALIZED\nmore")

    monkeypatch.setattr(binding.load_cudnn(), "create_handle", refuse)
    with refuses("device cuda: cuDNN 9.28.0 cannot start: CUDNN_STATUS_NOT_INITIALIZED", DeviceError):
        Handles().of(FakeStream("a", []))


@pytest.mark.usefixtures("cudnn")
def test_bound_runs_hand_on_addresses():
    planner = FakePlanner(workspace=64)
    cudnn = Cudnn(planner, Handles())
    x, y, scratch = (HostArray(np.zeros(48, dtype)) for dtype in (np.float32, np.float16, np.uint8))
    assert cudnn.workspace(SPEC, None, SPEC) == 64
    assert cudnn.workspace() == 0
    scratch = HostArray(np.zeros(64, np.uint8))
    run = together([cudnn.bind(SPEC, {"x": x, "y": y}, scratch)] * 2)
    assert planner.calls == []  # nothing runs while it is bound
    run(FakeStream("s", [], pointer=7))
    assert planner.calls == [("cast", {1: x.ptr, 2: y.ptr}, scratch.ptr, "handle 0")] * 2


@pytest.mark.usefixtures("cudnn")
def test_weights_in_16_bits_lie_elsewhere():
    """A rank that computes in 16 bits says where the copies of its float32 weights are."""
    planner = FakePlanner(workspace=0)
    x, y = HostArray(np.zeros(48, np.float32)), HostArray(np.zeros(48, np.float32))
    shadows = {(x.ptr, "float32"): 111, (y.ptr, "float16"): 222}
    cudnn = Cudnn(planner, Handles(), lambda array, dtype: shadows[array.ptr, dtype])
    cudnn.bind(SPEC, {"x": x, "y": y})(FakeStream("s", []))
    assert planner.calls == [("cast", {1: 111, 2: 222}, 0, "handle 0")]


def test_what_is_bound_wrongly():
    cudnn = Cudnn(FakePlanner(workspace=64), Handles())
    x, y = HostArray(np.zeros(48, np.float32)), HostArray(np.zeros(48, np.float16))
    with pytest.raises(AssertionError, match=r"cast is bound without, or with more than, its operands: \['y'\]"):
        cudnn.bind(SPEC, {"x": x})
    with pytest.raises(AssertionError, match="an array of float32 where float16 is wanted"):
        cudnn.bind(SPEC, {"x": x, "y": x}, y)
    with pytest.raises(AssertionError, match="cast"):
        cudnn.bind(SPEC, {"x": x, "y": y}, HostArray(np.zeros(63, np.uint8)))


def test_what_cuda_does_not_capture_ends_in_words():
    class Stream(FakeStream):
        def capture(self, enqueue):
            raise Refused("cudaErrorStreamCaptureUnsupported: operation not permitted")

    learner = Executor("learner 0", [kernel("forward")], Stream("s0", []))
    with refuses(
        "learner 0: CUDA cannot capture its work in a graph (cudaErrorStreamCaptureUnsupported: operation not "
        "permitted): graphs=false works without",
        DeviceError,
    ):
        learner.prepare()


def test_replays_are_timed():
    """Python enqueues a run once to warm up and twenty times into a graph; only launches lie between the events."""
    log = []
    stream = FakeStream("s", log, milliseconds_of_rounds=[900.0, 50.0, 20.0, 10.0, 30.0, 40.0])
    assert seconds_of(lambda: stream.enqueue("kernel"), stream) == pytest.approx(30.0 / 20 / 1e3)
    assert log[:3] == [("kernel", "s"), ("synchronise", "s"), ("captured", "s", 20)]
    assert log[3:] == [
        entry
        for i in range(1, 13, 2)
        for entry in (
            ("record", f"s {i}", "timed"), ("launch", "s", 20), ("record", f"s {i + 1}", "timed"),
            ("synchronise", f"s {i + 1}"),
        )
    ]  # fmt: skip


def test_a_plan_is_timed_on_arrays_of_its_own():
    driver = FakeDriver()
    stream = FakeStream("s", driver.log, milliseconds_of_rounds=[9.0, 50.0, 20.0, 10.0, 30.0, 40.0])
    planner = FakePlanner(workspace=100)
    timer = DeviceTimer(driver, stream, lambda stream: "handle")
    spec = NormBackward((2, 8, 3, 3), TF32, relu=True)
    assert timer(planner.plan(spec)) == pytest.approx(30.0 / 20 / 1e3)
    assert len(planner.calls) == 1 + 20
    operands = 3 * [144 * 4] + [144] + 5 * [8 * 4]  # dy, x, dx; the mask; weight, mean, inverse, dweight, dbias
    assert driver.log[0] == ("allocate", sum(-(-size // 256) * 256 for size in operands) + 256)
    (_, addresses, workspace, handle) = planner.calls[0]
    places = sorted(addresses.values())
    assert len(set(places)) == len(operands)
    assert all((at - places[0]) % 256 == 0 for at in places)
    assert workspace > places[-1]
    assert handle == "handle"


def test_what_there_is_no_memory_to_time():
    driver = FakeDriver(free=1000)
    timer = DeviceTimer(driver, FakeStream("s", driver.log), lambda stream: "handle")
    with refuses(
        "1.0 MiB to time eng0 of cast do not fit on the GPU: use fewer learners, or a smaller batch_size", DeviceFull
    ):
        timer(FakePlanner(workspace=1 << 20).plan(SPEC))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "bool"])
def test_operands_are_filled_with_numbers(dtype):
    found = random_bytes(dtype, 4096, np.random.default_rng(1))
    assert (found.dtype, found.size) == (np.uint8, 4096)
    if dtype == "bfloat16":
        numbers = (found.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        numbers = found.view(dtype) if dtype != "bool" else found / 255 - 0.5
    assert abs(float(np.mean(numbers, dtype=np.float64))) < 0.2
    assert 0.2 < float(np.std(numbers, dtype=np.float64)) < 1.2
    assert (numbers != 0).mean() > 0.9
