"""What a rank's learners compute on: the host's cores or a GPU. All in which a session's parts differ is behind it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from mpibow.comm.communicator import Communicator
from mpibow.data.feeds import Feed
from mpibow.data.loading import Loading
from mpibow.data.pipeline import Reader
from mpibow.data.readers import Facts
from mpibow.device.feed import Packing
from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout
from mpibow.job import Job
from mpibow.learn.learners import Binder, Learners
from mpibow.learn.replica import Replicas
from mpibow.run.device_times import Times
from mpibow.run.evaluate import Bind
from mpibow.session.host import Host
from mpibow.session.on_gpu import OnGpu
from mpibow.sync.outbox import Zeros
from mpibow.sync.rule import Rule
from mpibow.sync.tally import Book
from mpibow.trace import Trace
from mpibow.tune import Counts

Call = Callable[[Callable[[Communicator], Any]], Any]  # the synchroniser's


class Device(Protocol):
    """One rank's; all ranks call it alike."""

    @property
    def name(self) -> str: ...

    @property
    def enqueues(self) -> bool:
        """Whether threads only enqueue what learners do: then one is enough for all."""
        ...

    # Memory, in bytes

    def facts(self, comm: Communicator) -> Facts:
        """What the choice of a pipeline depends on. Collective."""
        ...

    def free(self, comm: Communicator) -> int:
        """This rank's share of the memory that is free where learners compute. Collective."""
        ...

    def room(self, call: Call) -> int:
        """What new learners may take of it, while exchanges may be under way. Collective."""
        ...

    def peak(self) -> int | None:
        """The most that was held so far; None where that is not known."""
        ...

    def capacity(self, given: int, room: int) -> int:
        """Replicas to keep rows for, where `given` are wanted and there is `room` for so many."""
        ...

    def averaging_bytes(self, layout: Layout) -> int:
        """What averaging takes, whatever the number of learners."""
        ...

    @property
    def place(self) -> str:
        """Which memory that is, behind "that are free"."""
        ...

    # Executions: in which ways the learners of a rank can run

    @property
    def compares(self) -> bool:
        """Whether executions are to be measured against each other."""
        ...

    def execution(self, recorded: str) -> str:
        """Which one is begun with, where this one was `recorded`."""
        ...

    # Parts

    def transport(self, comm: Communicator, stack: ExitStack) -> tuple[Communicator, str]:
        """What averages, `stack` ends it; and a note for the user. Collective."""
        ...

    def binder(self, replicas: Replicas, packing: Packing, ranks: int) -> Binder: ...

    def zeros(self, comm: Communicator) -> Zeros | None:
        """What makes the arrays that a rule sends; None leaves it to the passes. Collective."""
        ...

    def book(self, rule: Rule, learners: Learners, comm: Communicator) -> Book: ...

    @property
    def evaluation(self) -> Bind | None:
        """What binds plans of evaluation; None is the host's way."""
        ...

    def times(self, trace: Trace) -> Times: ...

    def open(self, loading: Loading) -> tuple[Reader, Feed]: ...

    def drain(self, learners: Learners) -> None:
        """Waits until nothing is under way any more."""
        ...

    # The loss's scale, where 16 bits need one

    def scale_state(self) -> Array | None: ...

    def load_scale(self, state: Array) -> None: ...

    def scale_is_large(self) -> bool:
        """Whether it may still be halved."""
        ...

    # Words

    def warnings(self, comm: Communicator, counts: Counts, room: int) -> list[str]:
        """Where learners are more than a rank's cores, or the `room` for them. Collective."""
        ...

    def limits(self, call: Call, counts: Counts) -> list[str]:
        """What keeps a rank from more learners than the `counts` that were settled on. Collective."""
        ...

    def notes(self, execution: str, *, compared: bool) -> list[str]:
        """How learners run; `compared` with another execution."""
        ...


def device_of(job: Job, ranks: int) -> Device:
    """That of a `job` which is opened, on a node with so many ranks."""
    gpu = job.kernels.gpu
    return Host(job.config, ranks) if gpu is None else OnGpu(job, gpu)
