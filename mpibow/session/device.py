"""The device of a rank's learners, the host's cores or a GPU: all differences between them are behind it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from mpibow.comm.communicator import Communicator
from mpibow.cuda.session import OnGpu
from mpibow.cuda.times import Times
from mpibow.data.feeds import Feed
from mpibow.data.loading import Held, Loading
from mpibow.data.pipeline import Reader
from mpibow.data.readers import Facts
from mpibow.graph.layout import Layout
from mpibow.graph.plan import Plan
from mpibow.job import Job
from mpibow.learn.learners import Binder, Learners
from mpibow.learn.replica import Replicas
from mpibow.run.evaluate import Bind
from mpibow.run.state import Scale
from mpibow.session.host import Host
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
        """Its name in messages, after "that are free"."""
        ...

    def free(self, comm: Communicator) -> int:
        """This rank's share of the free memory. Collective."""
        ...

    def facts(self, comm: Communicator) -> Facts:
        """The facts that the choice of a pipeline depends on. Collective."""
        ...

    def fits(self, comm: Communicator, learner: int, held: Held) -> int:
        """The number of learners of `learner` bytes that fit beside `held`. Collective."""
        ...

    def check(
        self, comm: Communicator, k: int, training: Plan, evaluation: Plan | None, states: float, loading: Loading
    ) -> None:
        """Raises ConfigError where k learners, each with so many states, cannot fit. Collective."""
        ...

    def room(self, call: Call) -> int:
        """The bytes that new learners may take, while exchanges may be under way. Collective."""
        ...

    def peak(self) -> int | None:
        """The most bytes held so far; None where that is not known."""
        ...

    def capacity(self, given: int, room: int) -> int:
        """The number of replicas to keep rows for, where `given` are asked for and `room` fit."""
        ...

    def averaging(self, layout: Layout) -> int:
        """The bytes that averaging takes, whatever the number of learners."""
        ...

    def held(self, loading: Loading) -> Held:
        """The bytes that reading ahead takes."""
        ...


class Executions(Protocol):
    """The ways in which the learners of a rank can run."""

    @property
    def compared(self) -> bool:
        """Whether the executions are to be measured against each other."""
        ...

    def first(self, recorded: str) -> str:
        """The execution to begin with, if a run had `recorded`."""
        ...

    def notes(self, execution: str, *, compared: bool) -> list[str]:
        """Lines for the log about `execution`; `compared` with another one."""
        ...


class Device(Protocol):
    """One rank's device; all ranks call it alike."""

    @property
    def name(self) -> str: ...

    @property
    def enqueues(self) -> bool:
        """Whether threads only enqueue the learners' work: then one thread is enough for all."""
        ...

    @property
    def memory(self) -> Memory: ...

    @property
    def executions(self) -> Executions: ...

    @property
    def scale(self) -> Scale: ...

    @property
    def evaluation(self) -> Bind:
        """The binder of evaluation plans."""
        ...

    def transport(self, comm: Communicator, stack: ExitStack) -> tuple[Communicator, str]:
        """The communicator that averages, closed by `stack`; and a note for the user. Collective."""
        ...

    def binder(self, replicas: Replicas, loading: Loading, ranks: int) -> Binder: ...

    def zeros(self, comm: Communicator) -> Zeros | None:
        """The allocator of the arrays that a rule sends; None leaves it to the passes. Collective."""
        ...

    def book(self, rule: Rule, learners: Learners, comm: Communicator) -> Book: ...

    def times(self, trace: Trace) -> Times: ...

    def open(self, loading: Loading) -> tuple[Reader, Feed]: ...

    def warnings(self, comm: Communicator, counts: Counts, room: int) -> list[str]:
        """Warnings of more learners than a rank has cores or `room` for. Collective."""
        ...

    def limits(self, call: Call, counts: Counts) -> list[str]:
        """Notes on the limits that keep a rank from more learners than the settled `counts`. Collective."""
        ...

    def close(self) -> None:
        """Waits for averaging to end; its memory may be freed afterwards."""
        ...


def device_of(job: Job, ranks: int) -> Device:
    """The device of an opened `job`, on a node with so many ranks."""
    gpu = job.kernels.gpu
    return Host(job.config, ranks) if gpu is None else OnGpu(job, gpu)
