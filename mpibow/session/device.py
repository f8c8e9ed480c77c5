"""What a rank's learners compute on: the host's cores or a GPU. All in which a session's parts differ is behind it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from mpibow.comm.communicator import Communicator
from mpibow.data.feeds import Feed
from mpibow.data.loading import Held, Loading
from mpibow.data.pipeline import Reader
from mpibow.data.readers import Facts
from mpibow.device.feed import Packing
from mpibow.graph.layout import Layout
from mpibow.job import Job
from mpibow.learn.learners import Binder, Learners
from mpibow.learn.replica import Replicas
from mpibow.run.device_times import Times
from mpibow.run.evaluate import Bind
from mpibow.run.state import Scale
from mpibow.session.host import Host
from mpibow.session.on_gpu import OnGpu
from mpibow.sync.outbox import Zeros
from mpibow.sync.rule import Rule
from mpibow.sync.tally import Book
from mpibow.trace import Trace
from mpibow.tune import Counts

Call = Callable[[Callable[[Communicator], Any]], Any]  # the synchroniser's


class Memory(Protocol):
    """The memory where learners compute, in bytes."""

    @property
    def place(self) -> str:
        """Which one that is, behind "that are free"."""
        ...

    def free(self, comm: Communicator) -> int:
        """This rank's share of what is free. Collective."""
        ...

    def facts(self, comm: Communicator) -> Facts:
        """What the choice of a pipeline depends on. Collective."""
        ...

    def fits(self, comm: Communicator, learner: int, held: Held) -> int:
        """Learners of `learner` bytes that there is memory for, beside what is `held`. Collective."""
        ...

    def room(self, call: Call) -> int:
        """What new learners may take, while exchanges may be under way. Collective."""
        ...

    def peak(self) -> int | None:
        """The most that was held so far; None where that is not known."""
        ...

    def capacity(self, given: int, room: int) -> int:
        """Replicas to keep rows for, where `given` are wanted and there is `room` for so many."""
        ...

    def averaging(self, layout: Layout) -> int:
        """What averaging takes, whatever the number of learners."""
        ...

    def held(self, loading: Loading) -> Held:
        """What reading ahead takes."""
        ...


class Executions(Protocol):
    """The ways in which the learners of a rank can run."""

    @property
    def compared(self) -> bool:
        """Whether they are to be measured against each other."""
        ...

    def first(self, recorded: str) -> str:
        """The one to begin with, where this one was `recorded`."""
        ...

    def notes(self, execution: str, *, compared: bool) -> list[str]:
        """What the log says of it; `compared` with another one."""
        ...


class Device(Protocol):
    """One rank's; all ranks call it alike."""

    @property
    def name(self) -> str: ...

    @property
    def enqueues(self) -> bool:
        """Whether threads only enqueue what learners do: then one is enough for all."""
        ...

    @property
    def memory(self) -> Memory: ...

    @property
    def executions(self) -> Executions: ...

    @property
    def scale(self) -> Scale: ...

    @property
    def evaluation(self) -> Bind:
        """What binds plans of evaluation."""
        ...

    def transport(self, comm: Communicator, stack: ExitStack) -> tuple[Communicator, str]:
        """What averages, `stack` ends it; and a note for the user. Collective."""
        ...

    def binder(self, replicas: Replicas, packing: Packing, ranks: int) -> Binder: ...

    def zeros(self, comm: Communicator) -> Zeros | None:
        """What makes the arrays that a rule sends; None leaves it to the passes. Collective."""
        ...

    def book(self, rule: Rule, learners: Learners, comm: Communicator) -> Book: ...

    def times(self, trace: Trace) -> Times: ...

    def open(self, loading: Loading) -> tuple[Reader, Feed]: ...

    def warnings(self, comm: Communicator, counts: Counts, room: int) -> list[str]:
        """Where learners are more than a rank's cores, or the `room` for them. Collective."""
        ...

    def limits(self, call: Call, counts: Counts) -> list[str]:
        """What keeps a rank from more learners than the `counts` that were settled on. Collective."""
        ...

    def close(self) -> None:
        """Waits for what averages: its memory may go after it."""
        ...


def device_of(job: Job, ranks: int) -> Device:
    """That of a `job` which is opened, on a node with so many ranks."""
    gpu = job.kernels.gpu
    return Host(job.config, ranks) if gpu is None else OnGpu(job, gpu)
