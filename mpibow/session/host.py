"""The parts of a session whose learners are threads on the host's cores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from mpibow.comm.binding import core_limits, core_warnings
from mpibow.comm.communicator import Communicator
from mpibow.config import Config
from mpibow.cuda.times import Untimed
from mpibow.data.feeds import Feed
from mpibow.data.loading import Held, Loading
from mpibow.data.pipeline import Reader
from mpibow.data.readers import Facts, find_facts
from mpibow.graph.graph import Array
from mpibow.graph.layout import Layout
from mpibow.graph.plan import Plan
from mpibow.learn.learner import HostBinder
from mpibow.learn.learners import Learners
from mpibow.learn.replica import Replicas
from mpibow.run.evaluate import bind_on_host
from mpibow.run.memory import (
    TAKEN,
    check_group,
    copy_bytes,
    free_memory,
    learner_bytes,
    memory_warnings,
    room_for,
)
from mpibow.sync.outbox import Zeros
from mpibow.sync.rule import Rule
from mpibow.sync.rules import is_one_copy
from mpibow.sync.settings import MOST
from mpibow.sync.tally import Book
from mpibow.trace import Trace
from mpibow.tune import Counts

AVERAGING = 5  # flat arrays


class HostMemory:
    """A node's memory, which `ranks` share."""

    place = "for a rank"

    def __init__(self, config: Config, ranks: int) -> None:
        self._config, self.ranks = config, ranks

    def bytes(self) -> int:
        """A rank's share of the free memory."""
        return free_memory(self.ranks)

    def free(self, comm: Communicator) -> int:
        return self.bytes()

    def facts(self, comm: Communicator) -> Facts:
        return find_facts(self.ranks)

    def fits(self, comm: Communicator, learner: int, held: Held) -> int:
        return room_for(self.bytes(), learner, MOST)

    def check(
        self, comm: Communicator, k: int, training: Plan, evaluation: Plan | None, states: float, loading: Loading
    ) -> None:
        one, array = is_one_copy(self._config.averaging), copy_bytes(training)
        learners = k * learner_bytes(training, evaluation, loading.held.learner, states, one)
        centre = array * (3 if comm.size > 1 else 1)  # and the two arrays that ranks send in turn
        check_group(comm, {
            f"for {k} learner(s)": learners + (copy_bytes(training, states) if one else 0),
            "for averaging": centre, "for resident data": loading.resident,
        })  # fmt: skip

    def room(self, call: Callable[..., Any]) -> int:
        return int(TAKEN * self.bytes())

    def peak(self) -> None:
        return None

    def capacity(self, given: int, room: int) -> int:
        """Rows that nobody touches take no memory."""
        return max(min(room, self._config.tuner.most), given)

    def averaging(self, layout: Layout) -> int:
        return AVERAGING * layout.size * (8 if self._config.precision == "float64" else 4)

    def held(self, loading: Loading) -> Held:
        return loading.held


class OneWay:
    """Each learner on a thread of its own: there is no other execution."""

    compared = False

    def first(self, recorded: str) -> str:
        return ""

    def notes(self, execution: str, *, compared: bool) -> list[str]:
        return []


class NoScale:
    """No scale: 32 bits need none, also in a run that began on a GPU."""

    def state(self) -> None:
        return None

    def load(self, state: Array) -> None:
        pass

    def is_large(self) -> bool:
        return False


class Host:
    """As mpibow.session.device.Device has it; `ranks` share the node."""

    name, enqueues = "cpu", False
    executions, scale, evaluation = OneWay(), NoScale(), staticmethod(bind_on_host)

    def __init__(self, config: Config, ranks: int) -> None:
        self.memory = HostMemory(config, ranks)
        self._config, self._settled = config, Counts()

    def transport(self, comm: Communicator, stack: ExitStack) -> tuple[Communicator, str]:
        return comm, ""

    def binder(self, replicas: Replicas, loading: Loading, ranks: int) -> HostBinder:
        return HostBinder(replicas, self._config.update)

    def zeros(self, comm: Communicator) -> Zeros:
        return comm.zeros

    def book(self, rule: Rule, learners: Learners, comm: Communicator) -> Book:
        return Book()

    def times(self, trace: Trace) -> Untimed:
        return Untimed()

    def open(self, loading: Loading) -> tuple[Reader, Feed]:
        return loading.open()

    def warnings(self, comm: Communicator, counts: Counts, room: int) -> list[str]:
        """Warnings for given learners; `auto` finds its own number."""
        if self._config.learners == "auto":
            return core_warnings(comm, (1,) * comm.size)
        return [*core_warnings(comm, counts), *memory_warnings(comm, counts, room)]

    def limits(self, call: Callable[..., Any], counts: Counts) -> list[str]:
        """The limits; [] if these learners had theirs last time."""
        if counts == self._settled:
            return []
        self._settled = counts
        found: list[str] = call(lambda comm: core_limits(comm, counts))
        return found

    def close(self) -> None:
        """Nothing to do: its threads have ended with the scheduler."""
