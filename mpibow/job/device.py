"""The seam between a run and the device that its learners compute on."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from mpibow.comm import Communicator
from mpibow.data import Feed
from mpibow.data.loading import Loading
from mpibow.data.readers import Reader
from mpibow.graph import Array, ArraysByName, Plan
from mpibow.kernels import KernelSet
from mpibow.learn.learners import Binder, Learners
from mpibow.learn.replica import Replicas
from mpibow.sync import Engine
from mpibow.sync.outbox import Book
from mpibow.trace import Trace

from .memory import Memory

if TYPE_CHECKING:
    from .job import Job

Compute = Callable[[ArraysByName], ArraysByName]  # one batch, from a slot's arrays to outputs


class Device:
    """One rank's device: here the host's cores. Another kind, as mpibow.cuda, overrides what differs.

    All ranks call it alike.
    """

    name = "cpu"
    enqueues = False  # whether threads only enqueue the learners' work: then one thread is enough for all

    def __init__(self, kernels: KernelSet | None = None, memory: Memory | None = None):
        """`kernels` None: those that the config chooses."""
        self.kernels = kernels
        self.memory = memory or Memory()

    def executions(self, job: "Job") -> Mapping[str, str]:
        """The ways in which learners can run, the preferred one first, each in words; {} where there is one only."""
        return {}

    def transport(self, job: "Job", comm: Communicator, stack: ExitStack) -> tuple[Communicator, str]:
        """The communicator that averages, closed by `stack`; and a note for the user. Collective."""
        return comm, ""

    def bind(self, job: "Job", replicas: Replicas, loading: Loading, ranks: int, trace: Trace) -> Binder:
        """The maker of learners."""
        return Binder(replicas, job.config.update)

    def bind_evaluation(self, plan: Plan, centre: Array, statistics: Array) -> Compute:
        """One batch of an evaluation; the outputs are overwritten by the next."""
        bound = plan.bind(centre, statistics=statistics)

        def compute(slot: ArraysByName) -> ArraysByName:
            for name, array in bound.inputs.items():
                np.copyto(array, slot[name])
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                bound.run()
            return bound.outputs

        return compute

    def book(self, engine: Engine, learners: Learners, comm: Communicator) -> Book:
        return Book()

    def feed(self, loading: Loading) -> tuple[Reader, Feed]:
        return loading.open()

    def close(self) -> None:
        """Waits for averaging to end; its memory may be freed afterwards."""


HOST = Device()
