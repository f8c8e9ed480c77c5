"""From a graph to a plan: cuDNN's heuristics rank engines, the deterministic ones are built, the fastest is kept."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from mpibow.cuda.device.machine import DeviceFull
from mpibow.errors import DeviceError

from .graphs import CudnnObject, build_graph, first_line, load_cudnn, refusals
from .kept import Folder, Made
from .operands import numbered
from .specs import Spec, has_products

BACKEND_ENGINES = range(10_000)  # cuDNN's own; behind them are the frontend's, which need more packages
WORKSPACE = 1 << 30  # bytes at most of one plan


@dataclass(frozen=True)
class Target:
    """The device that plans are for: of `handle`, or of `properties` where it is described and not here.

    `name` is what its plans are filed under: its kind, not which one it is.
    """

    name: str
    handle: int | None = None
    properties: CudnnObject = None


@dataclass
class Executable:
    """A plan that runs on device addresses. One for all streams: calls take turns, and each only enqueues."""

    spec: Spec
    made: Made
    graph: CudnnObject
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def workspace(self) -> int:
        """Bytes that it needs during a call: a kernel's `scratch`."""
        return self.made.workspace

    def run(self, addresses: Mapping[str, int], workspace: int, handle: int) -> None:
        """Enqueues it on the handle's stream; addresses by operand. Waits for nothing, allocates nothing on the device.

        Raises DeviceError where cuDNN refuses. Never run on a device yet.
        """
        numbers = numbered(self.spec.operands)
        try:
            with self._turn:  # the frontend keeps one array of addresses a graph
                self.graph.execute({numbers[name]: at for name, at in addresses.items()}, workspace, handle=handle)
        except refusals() as error:
            raise DeviceError(f"cuDNN does not run {self.made.engine} for {self.spec}: {first_line(error)}") from None


Timer = Callable[[Executable], float]  # seconds of one run


class Planner:
    """Plans by spec, made once: read from `folder`, else built and, with a timer, the fastest of `tries` taken.

    Timing may choose another plan another time: then bits repeat only where the plans are kept.
    """

    def __init__(self, target: Target, tries: int = 1, folder: Folder | None = None, timer: Timer | None = None):
        self._target, self._tries, self._folder, self._timer = target, tries, folder, timer
        self._made = dict[Spec, Executable]()
        self._lock = threading.Lock()  # learners bind their plans one after the other

    def plan(self, spec: Spec) -> Executable:
        """Raises DeviceError where no engine computes `spec` on this device as it must be computed."""
        with self._lock:
            if spec not in self._made:
                self._made[spec] = self._kept(spec) or self._make(spec)
            return self._made[spec]

    def _kept(self, spec: Spec) -> Executable | None:
        with suppress(DeviceError):  # of another build of the same version, say: it is made anew
            if self._folder and (made := self._folder.read(spec)):
                return self._load(spec, made)
        return None

    def _load(self, spec: Spec, made: Made) -> Executable:
        cudnn, handle = load_cudnn(), self._target.handle
        graph = cudnn.pygraph(handle=handle, device_property=self._target.properties)
        try:
            graph.deserialize(*([] if handle is None else [handle]), list(made.blob))
        except refusals() as error:
            raise DeviceError(
                f"cuDNN {cudnn.backend_version_string()} does not read the plan {made.engine} of {spec}: "
                f"{first_line(error)}"
            ) from None
        return Executable(spec, made, graph)

    def _make(self, spec: Spec) -> Executable:
        """The first plan that can be built, or the fastest of those that are tried; kept for the next run."""
        found = candidates(spec, self._target, self._tries)
        best = self._fastest(spec, found, self._timer) if self._timer else next(found)
        best = self._load(spec, best.made)  # alone, without the graph that its rivals were built in
        if self._folder:
            self._folder.write(spec, best.made)
        return best

    def _fastest(self, spec: Spec, found: Iterator[Executable], timer: Timer) -> Executable:
        timed = []
        refused = DeviceError()
        for one in found:
            try:
                seconds = timer(one)
            except DeviceFull:
                raise
            except DeviceError as error:  # this engine cannot be run, or captured: another may
                refused = error
                continue
            timed.append((seconds, Executable(spec, replace(one.made, seconds=seconds), one.graph)))
        if not timed:
            raise refused
        return min(timed, key=lambda pair: pair[0])[1]


def candidates(spec: Spec, target: Target, tries: int) -> Iterator[Executable]:
    """Plans of `spec` in cuDNN's order, each built when it is asked for; all are deterministic.

    So many `tries` are of engines that cuDNN brings as machine code: such a plan is built in no time. One more is of an
    engine that it compiles for the plan, for a second or more.

    Raises DeviceError where there is none, with the spec and cuDNN's own words.
    """
    cudnn = load_cudnn()
    graph = build_graph(spec, handle=target.handle, properties=target.properties)
    why, any_built = "", False
    left = {False: tries, True: 1}  # by whether the engine is compiled for the plan
    try:
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.deselect_numeric_notes(forbidden(cudnn.numerical_note, spec))
        graph.deselect_workspace_greater_than(WORKSPACE)
        indices = range(graph.get_execution_plan_count())
    except refusals() as error:
        why, indices = first_line(error), range(0)
    for index in indices:
        try:
            engine, _ = graph.get_engine_and_knobs_at_index(index)
            if engine not in BACKEND_ENGINES:
                continue
            compiled = cudnn.behavior_note.RUNTIME_COMPILATION in graph.get_behavior_notes_for_plan_at_index(index)
            if not left[compiled]:
                continue
            graph.build_plan_at_index(index)
        except refusals() as error:
            why = first_line(error)
            continue
        any_built = True
        left[compiled] -= 1
        made = Made(bytes(graph.serialize()), graph.get_plan_name_at_index(index), graph.get_workspace_size())
        yield Executable(spec, made, graph)
    if not any_built:
        raise DeviceError(
            f"cuDNN {cudnn.backend_version_string()} has no engine on {target.name} for {spec} that is deterministic: "
            f"{why}"
        )


def forbidden(notes: CudnnObject, spec: Spec) -> list[CudnnObject]:
    """The numerical notes that an engine must not have.

    Sums are in float32 and inputs are never rounded below their own precision; exact float32 stays off tensor cores.
    Engines of graphs without products carry the note as well, and round nothing.
    """
    exact = not spec.precision.tensor_cores and has_products(spec)
    found = [notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION, *([notes.TENSOR_CORE] if exact else [])]
    return [*found, notes.NONDETERMINISTIC]
