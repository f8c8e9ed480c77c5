"""The learners of one rank: each takes a slot and computes a gradient, on a thread or stream of its own, or fused."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import Any, Protocol

import numpy as np

from mpibow.data import Slot
from mpibow.errors import DeviceError
from mpibow.graph import Array, Layout, Plan
from mpibow.graph.bound import SILENT, BoundPlan
from mpibow.graph.kernel import Posted, Rows
from mpibow.graph.layout import halves
from mpibow.graph.stages import Stages
from mpibow.optim import Update
from mpibow.system import in_words

from .replica import Ranges, Replicas
from .scheduler import Meeting, Seat, Task


@dataclass(frozen=True)
class Result:
    """The result of one batch: summed loss, hits, whether loss and gradient are finite.

    Where the loss is finite and the gradient is not, `spoilt` are the elements of the weights whose gradients are not.
    """

    loss: float
    hits: float
    finite: bool
    spoilt: Ranges = ()


def clip(gradient: Array, value: float | None, norm: float | None, factors: Sequence[Sequence[int]] = ()) -> float:
    """Limits gradient (size,) in place, each element to +-value, then its length to norm; |gradient|^2 before `norm`.

    As PyTorch's clip_grad_value_ and clip_grad_norm_ (Pascanu et al., arXiv:1211.5063), for one learner's batch. NaN
    stays NaN, to be detected. `factors` (Layout.factors) are parts kept as factors: they have no elements to limit.
    """
    kept = [halves(gradient, factor) for factor in factors]
    rest = _between(gradient, factors)
    if value is not None:
        assert not kept
        np.clip(gradient, -value, value, out=gradient)
    square = sum(float(np.dot(part, part)) for part in rest) + sum(starmap(_product_square, kept))
    if norm is not None and norm * norm < square < math.inf:
        for part in (*rest, *(dy for dy, _ in kept)):
            part *= part.dtype.type(norm / math.sqrt(square))
    return square


def spoilt_in(gradient: Array, layout: Layout) -> tuple[tuple[int, int], ...]:
    """The elements [start, stop) of each weight whose gradient is not finite, or has a square that is not."""
    spoilt = []
    factors = layout.factors.tolist()
    for start, stop in ((span.offset, span.offset + span.size) for span in layout.spans):
        own = [(a - start, b - start, *rest) for a, b, *rest in factors if start <= a < stop]
        with np.errstate(over="ignore", invalid="ignore"):
            if start < gradient.size and not math.isfinite(clip(gradient[start:stop], None, None, own)):
                spoilt.append((start, stop))
    return tuple(spoilt)


def _between(gradient: Array, factors: Sequence[Sequence[int]]) -> list[Array]:
    """The parts of `gradient` that are not factors."""
    parts = []
    begin = 0
    for start, stop, *_ in factors:
        parts.append(gradient[begin:start])
        begin = stop
    return [*parts, gradient[begin:]]


def scale(gradient: Array, number: float, factors: Sequence[Sequence[int]]) -> None:
    """gradient (size,) <- number * gradient; only one of two factors is multiplied."""
    for part in (*_between(gradient, factors), *(halves(gradient, factor)[0] for factor in factors)):
        np.multiply(part, part.dtype.type(number), out=part)


def _product_square(dy: Array, x: Array) -> float:
    """|dy^T x|^2, from the products of the rows of each (rank of them) with one another."""
    rows = dy.transpose(1, 0, 2).reshape(dy.shape[1], -1)
    return float(np.vdot(rows @ rows.T, x.T @ x))


class Learner:
    """`plan` is bound to a replica's weights and to its gradient, whose trained elements are `gradient` (size,): those
    are clipped where limits are given."""

    def __init__(
        self,
        plan: BoundPlan,
        gradient: Array,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        meeting: Meeting | None = None,
        note_share: Callable[[float], float] = lambda share: 1.0,
        shorter: Mapping[int, BoundPlan] | None = None,
    ):
        """`meeting` has its plan's peers; `note_share` takes the share of its batch that counts, and returns the
        factor of its gradient. `shorter` are plans for slots of these lengths, bound to the same arrays."""
        self.plan = plan
        self.gradient = gradient
        self._meeting = meeting
        self._note_share = note_share
        self._full = plan
        self._shorter = dict(shorter or {})
        self.losses = [each.outputs["loss"] for each in (plan, *self._shorter.values())]
        factors = [each for each in plan.plan.layout.factors.tolist() if each[0] < gradient.size]
        self._limits = clip_value, clip_norm, factors
        self._batch: Any = None  # where all is commands
        make = plan.plan.kernels.batch
        limited = {clip_value, clip_norm} != {None}
        if make is not None and plan.commands and not (limited or self._shorter or "count" in plan.outputs):
            self._batch = make(plan, [halves(gradient, factor) for factor in factors])

    def compute(self, slot: Slot) -> Result:
        """Copies the slot in, releases it, and computes the gradient of the mean loss of its batch."""
        if self._batch is not None and self.begin(slot):
            self._batch.run()
            return self.end(slot)
        self.plan = self._full if slot.length is None else self._shorter.get(slot.length, self._full)
        for name, array in self.plan.inputs.items():
            whole = slot.arrays[name]
            np.copyto(array, whole if array.shape == whole.shape else whole[:, : array.shape[1]])
        slot.release()
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # asked once, below
            try:
                self.plan.run()
            except BaseException as error:
                if self._meeting is not None:
                    self._meeting.fail(error)
                raise
            loss = float(self.plan.outputs["loss"].sum(dtype=np.float64))
            square = clip(self.gradient, *self._limits)
            if (counts := self.plan.outputs.get("count")) is not None:
                factor = self._note_share(float(counts.sum(dtype=np.float64)) / len(counts))
                if factor != 1:
                    scale(self.gradient, factor, self._limits[2])
        hits = float(self.plan.outputs["accuracy"].sum(dtype=np.float64)) if "accuracy" in self.plan.outputs else 0.0
        return self._result(loss, hits, square)

    def begin(self, slot: Slot) -> Rows | None:
        """The commands that compute it, None where there are none; `end` is called when they have run."""
        return self._batch.rows if self._batch is not None and self._batch.fill(slot.arrays) else None

    def end(self, slot: Slot) -> Result:
        slot.release()
        return self._result(*self._batch.results())

    def _result(self, loss: float, hits: float, square: float) -> Result:
        finite = math.isfinite(loss) and math.isfinite(square)
        spoilt: Ranges = ()
        if math.isfinite(loss) and not finite and self._limits[1] is None:
            spoilt = spoilt_in(self.gradient, self.plan.plan.layout)
            finite = not spoilt
        return Result(loss, hits, finite, spoilt)

    def wait(self) -> None:
        """Its batch is over when `compute` is."""


class Computing(Protocol):
    """A `Learner`, or a device's: one that takes a slot, or as many as are fused."""

    @property
    def compute(self) -> Callable[..., Result | None]: ...
    def wait(self) -> None: ...


class Binder:
    """Makes learners, and checks their memory: here on the host's cores. A device's own overrides it.

    Their gradients are limited as `update` says.
    """

    def __init__(self, replicas: Replicas, update: Update):
        self._replicas = replicas
        self._limits = (update.clip_value, update.clip_norm)
        self._meeting = Meeting()
        self.stages: Stages | None = None  # None: no learner signals any

    def one(self, plan: Plan, i: int) -> Computing:
        """Learner i of `plan`. Raises MemoryError."""
        _, gradient, _ = row = self._replicas.row(i)
        seat = Seat(self._meeting, i)
        stages = self.stages
        own = gradient[: self._replicas.size]

        def bind(plan: Plan) -> BoundPlan:
            return plan.bind(*row, peers=seat, signals=SILENT if stages is None else stages.signals(plan, i))

        shorter = {length: bind(each) for length, each in plan.shorter.items()}
        return Learner(bind(plan), own, *self._limits, self._meeting, partial(self._replicas.note_share, i), shorter)

    def fused(self, plan: Plan, count: int) -> Computing:
        """All of `count` learners, each of `plan`, in one. Raises MemoryError."""
        raise AssertionError("the host's learners are never fused")

    def expect(self, count: int) -> None:
        """Learners 0 to count - 1 are about to run, at the same time where they have threads of their own."""
        self._meeting.expect(count)

    def lack(self, room: Callable[[], int], apart: int, fused: int | None) -> str:
        """A message which memory `room` lacks, '' if none: a host grants more than it has.

        New learners on their own take `apart` bytes. `fused` is the number of new ones to be tried in one: 0 if these
        are bound already, None if nothing is tried.
        """
        if apart == 0 or apart <= (free := room()):
            return ""
        return f"new learners need {in_words(apart)}; only {in_words(free)} may be used"


def first_come(learners: Sequence[Computing], slots: Sequence[Slot]) -> list[Task]:
    """Tasks of learners that each take the next slot when they begin, whoever is first (Crossbow, section 4.3)."""
    waiting = deque(slots)
    return [partial(lambda each: each.compute(waiting.popleft()), learner) for learner in learners[: len(slots)]]


def fixed(learners: Sequence[Computing], slots: Sequence[Slot]) -> list[Task]:
    """Tasks of learners that take the slot of their number."""

    def task(learner: Computing, slot: Slot) -> Task:
        compute = partial(learner.compute, slot)
        if not isinstance(learner, Learner):
            return compute
        return Posted(compute, partial(learner.begin, slot), partial(learner.end, slot))

    return list(map(task, learners, slots))


ASSIGNMENTS = {"fixed": fixed, "first_come": first_come}


STREAMS, FUSED = "streams", "fused"  # executions where learners are enqueued: on streams of their own, or all in one


class Learners:
    """Learner i has row i of `replicas`, and runs `plan`; one that is new takes `size` bytes."""

    def __init__(self, plan: Plan, replicas: Replicas, binder: Binder, assignment: str, size: int):
        self.plan = plan
        self.replicas = replicas
        self.size = size
        self.execution = ""
        self._binder = binder
        self._assign = ASSIGNMENTS[assignment]
        self._apart = list[Any]()
        self._fused = dict[int, Computing]()  # by how many they are

    @property
    def working(self) -> Sequence[Any]:
        """The learners that compute; fused ones are one."""
        count = self.replicas.count
        return [self._fused[count]] if self.execution == FUSED else self._apart[:count]

    def stage(self, chunk: int, count: int) -> Stages:
        """About `count` stages (graph/stages.py) of the passes of learners that are bound from here on."""
        replicas = self.replicas
        self._binder.stages = stages = Stages(
            self.plan, replicas.size, chunk, count, replicas.all_gradients,
            lambda: [each.losses for each in self._apart[: replicas.count]],
        )  # fmt: skip
        return stages

    def tasks(self, slots: Sequence[Slot]) -> list[Task]:
        """The threads' tasks: one slot each."""
        self._binder.expect(len(slots))
        if self.execution == FUSED:
            return [partial(self._fused[len(slots)].compute, *slots)]
        return self._assign(self._apart, slots)

    def change(self, count: int, execution: str, statistics: Array | None = None) -> None:
        """Changes to `count` learners run by `execution`. New replicas have `statistics`. Raises MemoryError.

        Work under way on a GPU goes on: events order the rest.
        """
        self.bind(count, execution)
        self.execution = execution
        if count != self.replicas.count:
            self.replicas.resize(count, statistics)

    def replan(self, plan: Plan) -> None:
        """The same learners, each bound to `plan` in place of the one before. Raises MemoryError."""
        self.wait()
        self._apart.clear()
        self._fused.clear()
        self.plan = plan
        self.bind(self.replicas.count, self.execution)

    def bind(self, count: int, execution: str) -> None:
        """Has `count` learners; those that were bound once stay bound, so a change is cheap. Raises MemoryError."""
        if execution != FUSED:
            while len(self._apart) < count:
                self._apart.append(self._binder.one(self.plan, len(self._apart)))
        elif count not in self._fused:
            self._fused[count] = self._binder.fused(self.plan, count)

    def bind_within(self, room: Callable[[], int], count: int, execution: str) -> str | None:
        """As `bind`, within the bytes that `room` returns: the reason why that fails, None if they are bound.

        All ranks call it alike: on a GPU `room` is called by all together.
        """
        tried = execution != self.execution
        apart = max(count - len(self._apart), 0) * self.size
        fused = (0 if count in self._fused else count) if tried and execution == FUSED else None
        if lack := self._binder.lack(room, apart, fused):
            return lack
        try:
            self.bind(count, execution)
        except (MemoryError, DeviceError) as error:  # a GPU's is both; or no kernel of cuDNN for such a shape
            if not (tried or isinstance(error, MemoryError)):
                raise
            return str(error)
        return None

    def wait(self) -> None:
        """Waits until no learner is under way."""
        for learner in (*self._apart, *self._fused.values()):
            learner.wait()
