"""The parts of a session whose learners compute on the rank's GPU, where threads only enqueue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mpibow.comm.communicator import Communicator
from mpibow.config import Config
from mpibow.cuda.exchange.transport import open_transport
from mpibow.cuda.feed.feeder import Feeder
from mpibow.cuda.feed.source import held_by, open_source, packing_of
from mpibow.cuda.kernels.fused import without_form
from mpibow.cuda.learner import GpuBinder
from mpibow.cuda.opening import EXECUTIONS, execution_of
from mpibow.cuda.times import DeviceTimes
from mpibow.data.feeds import Feed
from mpibow.data.loading import Held, Loading
from mpibow.data.pipeline import Reader
from mpibow.data.readers import Facts, find_facts
from mpibow.graph.layout import Layout
from mpibow.graph.plan import Plan
from mpibow.job import Job
from mpibow.learn.learners import Learners
from mpibow.learn.replica import Replicas
from mpibow.run.memory import TAKEN, free_memory, room_for
from mpibow.session.host import AVERAGING
from mpibow.sync.rule import Rule
from mpibow.sync.settings import MOST
from mpibow.sync.tally import DeviceBook
from mpibow.trace import Trace
from mpibow.tune import Counts

if TYPE_CHECKING:
    from mpibow.cuda.kernels.opened import Gpu


class GpuMemory:
    """A GPU's memory, which several ranks may share."""

    def __init__(self, config: Config, gpu: Gpu) -> None:
        self._config, self._gpu, self.free = config, gpu, gpu.free
        self.place = f"on {gpu.machine.found.gpu}"

    def facts(self, comm: Communicator) -> Facts:
        return find_facts(comm.local_size, self.free(comm))

    def fits(self, comm: Communicator, learner: int, held: Held) -> int:
        return room_for(self.free(comm) - held.data, learner, MOST, self.lockable(comm), held.locked)

    def lockable(self, comm: Communicator) -> int:
        """The bytes of the host's memory that may be page-locked."""
        return free_memory(comm.local_size)

    def check(
        self, comm: Communicator, k: int, training: Plan, evaluation: Plan | None, states: float, loading: Loading
    ) -> None:
        """The driver refuses what does not fit."""

    def room(self, call: Callable[..., Any]) -> int:
        return int(TAKEN * call(self.free))

    def peak(self) -> int:
        return self._gpu.machine.memory.peak

    def capacity(self, given: int, room: int) -> int:
        auto = self._config.learners == "auto"
        return max(min(room, self._config.tuner.most), given) if auto else given

    def averaging(self, layout: Layout) -> int:
        return AVERAGING * 4 * layout.size

    def held(self, loading: Loading) -> Held:
        return held_by(loading)


class Ways:
    """Each learner on a stream of its own, or all in the same kernels."""

    def __init__(self, job: Job) -> None:
        self._job, self._config = job, job.config

    @cached_property
    def _unfused(self) -> str:
        """Why learners can't be fused, '' where they can."""
        return without_form(self._job.build(self._config.batch_size, True))

    @property
    def compared(self) -> bool:
        return self._config.execution == "auto" and not (self._config.replayed or self._unfused)

    def first(self, recorded: str) -> str:
        return execution_of(self._config.execution, recorded)

    def notes(self, execution: str, *, compared: bool) -> list[str]:
        text = f"execution: {execution}, {EXECUTIONS[execution]}"
        if self._config.execution == "auto" and self._unfused:
            text = f"{text}: {self._unfused}"
        elif compared:
            text = f"{text}; the faster of both will be measured"
        turns = "assignment: first_come has no effect on a GPU, where the host enqueues batches in turn"
        return [text, turns] if self._config.assignment == "first_come" else [text]


class OnGpu:
    """As mpibow.session.device.Device has it."""

    enqueues = True

    def __init__(self, job: Job, gpu: Gpu, carrier: Callable[..., Any] = open_transport) -> None:
        """`carrier` makes the communicator that averages device arrays."""
        self._carrier = carrier
        self.memory, self.executions, self.scale = GpuMemory(job.config, gpu), Ways(job), gpu.scale
        self.name, self.evaluation, self.close = gpu.machine.found.gpu.name, gpu.evaluation, gpu.machine.close
        self._job, self._config, self._gpu, self._machine = job, job.config, gpu, gpu.machine

    def transport(self, comm: Communicator, stack: ExitStack) -> tuple[Communicator, str]:
        """Another communicator where ranks have device arrays to average."""
        if comm.size == 1:
            return comm, ""
        machine = self._machine
        found, note = self._carrier(
            comm, machine.driver, machine.stream, transport=self._config.transport, shared=machine.found.shared
        )
        stack.push(lambda kind, *_: found.part(failed=kind is not None))  # after a failure it waits for no peer
        return found, note

    def binder(self, replicas: Replicas, loading: Loading, ranks: int) -> GpuBinder:
        self._gpu.flat.learners(replicas.all_gradients)
        dated = ranks > 1

        def fused(count: int) -> Plan:
            return self._job.fused_plan(count, replicas.size)

        return GpuBinder(replicas, self._config.update, self._gpu, packing_of(loading), fused, dated=dated)

    def zeros(self, comm: Communicator) -> None:
        return None

    def book(self, rule: Rule, learners: Learners, comm: Communicator) -> DeviceBook:
        wait = getattr(comm, "wait", None)  # ranks may be late
        return DeviceBook(self._gpu, rule, lambda: learners.replicas.count, learners.events, wait)

    def times(self, trace: Trace) -> DeviceTimes:
        return DeviceTimes(self._machine, trace)

    def open(self, loading: Loading) -> tuple[Reader, Feed]:
        machine = self._machine
        feeder = Feeder(machine.driver, machine.found.gpu.index, machine.memory, timed=True)
        return open_source(loading, feeder, self._gpu.bind)

    def warnings(self, comm: Communicator, counts: Counts, room: int) -> list[str]:
        return []

    def limits(self, call: Callable[..., Any], counts: Counts) -> list[str]:
        return []
