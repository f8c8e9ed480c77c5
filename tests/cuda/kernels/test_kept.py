"""Plans on disk: what is read is what was written for just that, or nothing; and the choice among several plans."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpibow.cuda.device.machine import DeviceFull
from mpibow.cuda.kernels import graphs, opened, plans
from mpibow.cuda.kernels.kept import Folder, Made
from mpibow.cuda.kernels.operands import PRECISIONS
from mpibow.cuda.kernels.plans import Executable, Planner, Target, forbidden
from mpibow.cuda.kernels.specs import Cast, ConvForward, ConvGeometry, ReluBackward, Spec
from mpibow.errors import DeviceError
from tests.cuda.device.fakes import gpu
from tests.refusals import refuses

TF32, FP32 = PRECISIONS["tf32"], PRECISIONS["fp32"]
SPEC = Cast(48, "float32", "float16", TF32)
MADE = Made(bytes(range(200)), "eng7_k2=5", 1024, 2.5e-5)
WINDOW = ConvGeometry((2, 8, 6, 6), (8, 8, 3, 3), (2, 8, 6, 6), (1, 1), (1, 1), (1, 1))


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path / "plans", ("NVIDIA H100", "cuDNN 9.28.0"))


def only_file(folder: Folder) -> Path:
    (path,) = folder.path.iterdir()
    return path


@pytest.mark.parametrize("made", [MADE, Made(b"", "eng0", 0), Made(b"\n\n{}", "eng0", 1 << 40, 1e-9)])
def test_what_is_written_is_read(folder: Folder, made: Made):
    assert folder.read(SPEC) is None
    folder.write(SPEC, made)
    folder.write(SPEC, made)  # as another rank does
    assert folder.read(SPEC) == made
    assert only_file(folder).name.startswith("cast-")


def test_a_plan_is_for_its_spec_and_device_only(folder: Folder, tmp_path):
    folder.write(SPEC, MADE)
    other = Folder(folder.path, ("NVIDIA A100", "cuDNN 9.28.0"))
    assert folder.read(Cast(64, "float32", "float16", TF32)) is None
    assert other.read(SPEC) is None
    only_file(folder).rename(other.file_of(SPEC))  # a name is no proof
    assert other.read(SPEC) is None


def test_plans_are_kept_by_gpu_versions_and_choice(tmp_path, monkeypatch):
    def folder(version: str = "1.28.0", backend: str = "9.28.0", index: int = 0, tries: int = 1) -> Folder:
        cudnn = SimpleNamespace(__version__=version, backend_version_string=lambda: backend)
        monkeypatch.setattr(opened, "load_cudnn", lambda: cudnn)
        return opened.plan_folder(tmp_path, gpu(index), tries)

    assert folder() == folder(index=1)  # of one kind
    assert folder().about[:3] == ("NVIDIA H100 9.0", "9.28.0", "frontend 1.28.0")
    others = [folder(version="1.29.0"), folder(backend="9.29.0"), folder(tries=2)]
    assert len({folder().about, *(other.about for other in others)}) == 1 + len(others)


def test_a_file_cut_short_or_changed_is_no_plan(folder: Folder):
    folder.write(SPEC, MADE)
    path = only_file(folder)
    whole = path.read_bytes()
    assert json.loads(whole.split(b"\n")[1])["version"] == 1
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert folder.read(SPEC) is None
    for byte in range(len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << (byte % 8)
        path.write_bytes(damaged)
        assert folder.read(SPEC) is None
    path.write_bytes(whole)
    assert folder.read(SPEC) == MADE


def test_a_folder_that_takes_no_files(tmp_path):
    (tmp_path / "file").write_text("")
    folder = Folder(tmp_path / "file" / "plans", ())
    folder.write(SPEC, MADE)
    assert folder.read(SPEC) is None


class NotSupported(Exception):
    """As the frontend's: no RuntimeError."""


REFUSED = {b"refused": RuntimeError("CUDNN_STATUS_BAD_PARAM\nmore"), b"not supported": NotSupported("no such engine")}


class FakeGraph:
    def __init__(self, **options) -> None:
        self.options, self.loaded = options, b""

    def deserialize(self, *arguments) -> None:
        self.loaded = bytes(arguments[-1])
        if self.loaded in REFUSED:
            raise REFUSED[self.loaded]


@pytest.fixture
def made(monkeypatch) -> list[str]:
    """Three candidates a spec, which take 3, 1 and 2 ms; the engines that were built, in order."""
    built = []

    def candidates(spec: Spec, target: Target, tries: int):
        for i in range(min(3, tries)):
            built.append(f"eng{i}")
            yield Executable(spec, Made(bytes([i]), f"eng{i}", 10 * i), FakeGraph())

    frontend = SimpleNamespace(
        pygraph=FakeGraph, cudnnGraphNotSupportedError=NotSupported, backend_version_string=lambda: "9.28.0"
    )
    for module in (plans, graphs):
        monkeypatch.setattr(module, "load_cudnn", lambda: frontend)
    monkeypatch.setattr(plans, "candidates", candidates)
    return built


def timer(executable: Executable) -> float:
    return {"eng0": 3e-3, "eng1": 1e-3, "eng2": 2e-3}[executable.made.engine]


TARGET = Target("H100", properties="described")


def test_without_a_timer_the_first_is_taken(made):
    planner = Planner(TARGET, 3)
    plan = planner.plan(SPEC)
    assert (plan.made.engine, plan.workspace, made) == ("eng0", 0, ["eng0"])
    assert planner.plan(SPEC) is plan
    assert made == ["eng0"]
    assert plan.graph.loaded == b"\0"
    assert plan.graph.options == {"handle": None, "device_property": "described"}


def test_the_fastest_of_those_that_are_tried(made):
    assert Planner(TARGET, 1, timer=timer).plan(SPEC).made.engine == "eng0"
    made.clear()
    plan = Planner(TARGET, 2, timer=timer).plan(SPEC)
    assert (plan.made, made) == (Made(b"\1", "eng1", 10, 1e-3), ["eng0", "eng1"])
    assert Planner(TARGET, 9, timer=timer).plan(SPEC).made.engine == "eng1"


def test_what_is_kept_is_not_made_again(made, folder: Folder):
    Planner(TARGET, 3, folder, timer).plan(SPEC)
    made.clear()
    plan = Planner(TARGET, 3, folder, timer).plan(SPEC)
    assert (plan.made.engine, plan.graph.loaded, made) == ("eng1", b"\1", [])


@pytest.mark.parametrize("blob", REFUSED)
def test_a_kept_plan_that_cudnn_refuses_is_made_anew(made, folder: Folder, blob):
    folder.write(SPEC, Made(blob, "eng9", 0))
    assert Planner(TARGET, 1, folder).plan(SPEC).made.engine == "eng0"
    assert made == ["eng0"]
    again = folder.read(SPEC)
    assert again.engine == "eng0"


@pytest.mark.parametrize(
    ("blob", "words"), [(b"refused", "CUDNN_STATUS_BAD_PARAM"), (b"not supported", "no such engine")]
)
def test_a_new_plan_that_cudnn_does_not_read(made, monkeypatch, blob, words):
    """As where the frontend finds no CUDA runtime."""
    one = Executable(SPEC, Made(blob, "eng9", 0), FakeGraph())
    monkeypatch.setattr(plans, "candidates", lambda *_: iter([one]))
    with refuses(f"cuDNN 9.28.0 does not read the plan eng9 of {SPEC}: {words}", DeviceError):
        Planner(TARGET).plan(SPEC)


def test_an_engine_that_cannot_be_timed_is_passed_over(made):
    def without(*engines: str):
        def timed(executable: Executable) -> float:
            if executable.made.engine in engines:
                raise DeviceError(f"{executable.made.engine} is not captured")
            return timer(executable)

        return timed

    found = [
        Planner(TARGET, 3, timer=without(*engines)).plan(SPEC).made.engine
        for engines in ((), ("eng1",), ("eng1", "eng2"))
    ]
    assert found == ["eng1", "eng2", "eng0"]
    with pytest.raises(DeviceError, match=r"^eng2 is not captured$"):
        Planner(TARGET, 3, timer=without("eng0", "eng1", "eng2")).plan(SPEC)

    def full(executable: Executable) -> float:
        raise DeviceFull("no memory")

    made.clear()
    with pytest.raises(DeviceFull):
        Planner(TARGET, 3, timer=full).plan(SPEC)
    assert made == ["eng0"]


@pytest.mark.parametrize(
    ("error", "words"), [(RuntimeError("CUDNN_STATUS_EXECUTION_FAILED\nmore"), "CUDNN_STATUS_EXECUTION_FAILED"),
                         (NotSupported(), "NotSupported")],
)  # fmt: skip
@pytest.mark.usefixtures("made")
def test_a_plan_that_cudnn_does_not_run(error: Exception, words):
    def execute(*_, **__) -> None:
        raise error

    with refuses(f"cuDNN does not run eng7_k2=5 for {SPEC}: {words}", DeviceError):
        Executable(SPEC, MADE, SimpleNamespace(execute=execute)).run({"x": 512, "y": 768}, 1024, "handle")


@pytest.mark.skipif(importlib.util.find_spec("cudnn") is None, reason="nvidia-cudnn-frontend is not installed")
def test_what_the_installed_frontend_raises_is_what_is_caught():
    graph = graphs.load_cudnn().pygraph()
    asked = (graph.build_operation_graph, lambda: graph.deserialize(list(b"no plan")), lambda: graph.execute({}, 0))
    for refused in asked:
        with pytest.raises(graphs.refusals()):
            refused()


@pytest.mark.skipif(importlib.util.find_spec("cudnn") is None, reason="nvidia-cudnn-frontend is not installed")
def test_a_kept_file_that_the_installed_frontend_does_not_read(folder: Folder):
    folder.write(SPEC, MADE)
    assert Planner(Target("H100"), folder=folder)._kept(SPEC) is None


def test_a_device_at_hand_loads_by_its_handle(made):
    plan = Planner(Target("H100", handle="handle")).plan(SPEC)
    assert plan.graph.options == {"handle": "handle", "device_property": None}


class Notes:
    DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION, TENSOR_CORE, NONDETERMINISTIC = "down", "sums", "cores", "order"


@pytest.mark.parametrize(
    ("spec", "notes"),
    [
        (ConvForward(WINDOW, TF32), ["down", "sums", "order"]),
        (ConvForward(WINDOW, FP32), ["down", "sums", "cores", "order"]),
        (ReluBackward((2, 8, 6, 6), FP32, relu=True, sums=True), ["down", "sums", "order"]),
    ],
)
def test_what_an_engine_must_not_do(spec: Spec, notes):
    assert forbidden(Notes, spec) == notes


class OneGraph:
    """A graph of plans: of the frontend's own, one that cannot be built, then good ones, of which those in `compiled`
    are compiled when they are built."""

    def __init__(self, count: int = 4, compiled: Sequence[int] = ()) -> None:
        self.said = []
        self.at, self._count, self._compiled = -1, count, compiled

    def build_operation_graph(self) -> None: ...
    def create_execution_plans(self, modes: list[str]) -> None:
        self.said.append(modes)

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        self.said.append(notes)

    def deselect_workspace_greater_than(self, size: int) -> None:
        self.said.append(size)

    def get_execution_plan_count(self) -> int:
        return self._count

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[str]:
        return ["lt", "rtc"] if index in self._compiled else ["native"]

    def get_engine_and_knobs_at_index(self, index: int) -> tuple[int, dict[str, int]]:
        return (20_400 if index == 0 else index, {})

    def build_plan_at_index(self, index: int) -> None:
        if index == 1:
            raise NotSupported("Deselecting execution plan")
        self.at = index

    def serialize(self) -> list[int]:
        return [self.at]

    def get_plan_name_at_index(self, index: int) -> str:
        return f"eng{index}"

    def get_workspace_size(self) -> int:
        return 100 * self.at


def fake_cudnn() -> SimpleNamespace:
    return SimpleNamespace(
        heur_mode=SimpleNamespace(A="A", FALLBACK="FALLBACK"), numerical_note=Notes,
        behavior_note=SimpleNamespace(RUNTIME_COMPILATION="rtc"), cudnnGraphNotSupportedError=NotSupported,
        backend_version_string=lambda: "9.28.0",
    )  # fmt: skip


def planned(monkeypatch: pytest.MonkeyPatch, graph: OneGraph) -> OneGraph:
    for module in (plans, graphs):
        monkeypatch.setattr(module, "load_cudnn", fake_cudnn)
    monkeypatch.setattr(plans, "build_graph", lambda spec, **_: graph)
    return graph


def test_candidates_are_built_as_they_are_asked_for(monkeypatch):
    graph = planned(monkeypatch, OneGraph())
    found = plans.candidates(SPEC, TARGET, 2)
    assert next(found).made == Made(b"\2", "eng2", 200)
    assert graph.at == 2
    assert graph.said == [["A", "FALLBACK"], ["down", "sums", "order"], plans.WORKSPACE]
    assert [one.made.engine for one in found] == ["eng3"]


@pytest.mark.parametrize(
    ("compiled", "tries", "engines"),
    [
        ((), 12, list(range(2, 14))),
        (range(20), 12, [2]),
        ((2, 3, 5, 8), 3, [2, 4, 6, 7]),
    ],
)
def test_more_engines_are_tried_of_those_that_need_no_compiling(monkeypatch, compiled: Sequence[int], tries, engines):
    """Nothing is built beyond what is tried: that is what takes the time."""
    graph = planned(monkeypatch, OneGraph(20, compiled))
    built = []
    build = graph.build_plan_at_index
    monkeypatch.setattr(graph, "build_plan_at_index", lambda index: (built.append(index), build(index)))
    found = plans.candidates(SPEC, TARGET, tries)
    assert [one.made.engine for one in found] == [f"eng{i}" for i in engines]
    assert [i for i in built if i != 1] == engines


def test_no_candidate(monkeypatch):
    planned(monkeypatch, OneGraph(2))
    with refuses(
        "cuDNN 9.28.0 has no engine on H100 for Cast(count=48, source='float32', target='float16', precision="
        "Precision(name='tf32', io='float32', tensor_cores=True)) that is deterministic: Deselecting execution plan",
        DeviceError,
    ):
        list(plans.candidates(SPEC, TARGET, 1))
