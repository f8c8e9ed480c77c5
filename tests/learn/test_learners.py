"""The learners of a rank by themselves: who is bound and who works, whose slot is whose, and what memory is missing."""

from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from mpibow.cuda.device.machine import DeviceFull
from mpibow.cuda.feed.feeder import pack
from mpibow.cuda.kernels.fused import fused_bytes
from mpibow.cuda.learner import GpuBinder
from mpibow.errors import DeviceError
from mpibow.graph import Kernels, Plan, compile_plan, plan_layout
from mpibow.graph.bound import BoundPlan
from mpibow.kernels.numpy import OPERATORS
from mpibow.learn.learners import Binder, Learners
from mpibow.learn.replica import Replicas
from mpibow.optim import Sgd
from mpibow.system import in_words
from tests.learn.test_learner import BUILD, slot_of

SIZE = 1000  # bytes of a learner


@dataclass
class Watched:
    """A plan that keeps what it is bound to, and has no memory for more than `most` learners."""

    real: Plan
    most: int = 64
    bound: list = field(default_factory=list)
    shorter = MappingProxyType({})

    def bind(self, *arrays, **more) -> BoundPlan:
        if len(self.bound) == self.most:
            raise MemoryError("no room")
        self.bound.append(arrays)
        return self.real.bind(*arrays, **more)


def plan_of(batch: int = 4) -> Plan:
    graph = BUILD(batch)
    return compile_plan(graph, plan_layout(graph), Kernels(OPERATORS), "float32", training=True)


def learners_of(
    most: int = 64, *, assignment: str = "fixed", statistics: int = 0, gpu = None, fused_plan = None,
    kind: type[Learners] = Learners,
) -> Learners:  # fmt: skip
    plan = plan_of()
    replicas = Replicas(4, plan.layout.size, "float32", np.zeros(statistics, np.float32))
    watched = Watched(plan, most)
    update, host = Sgd(clip_norm=0.01), gpu is None
    binder = (
        Binder(replicas, update)
        if host
        else GpuBinder(replicas, update, gpu, pack({}, ()), fused_plan, None, dated=False)
    )
    return kind(watched, replicas, binder, assignment, SIZE)


def bound(learners: Learners) -> list:
    plan = learners.plan
    return list(plan.bound)


def test_each_is_bound_once_and_to_its_own_replica():
    learners = learners_of()
    assert len(learners.working) == 0
    seen = []
    for count, total in ((2, 2), (1, 2), (3, 3), (2, 3)):
        learners.change(count, "")
        assert (len(learners.working), learners.replicas.count, len(bound(learners))) == (count, count, total)
        seen.append(learners.working[0])
    assert len(set(map(id, seen))) == 1
    for i, arrays in enumerate(bound(learners)):
        assert all(np.shares_memory(mine, row) for mine, row in zip(arrays, learners.replicas.row(i), strict=True)
                   if row.size)  # fmt: skip


def test_who_is_bound_ahead_does_not_work_yet():
    learners = learners_of()
    learners.change(1, "")
    learners.bind(3, "")
    assert (len(learners.working), learners.replicas.count, len(bound(learners))) == (1, 1, 3)


def test_new_replicas_take_the_statistics_and_others_keep_theirs():
    learners = learners_of(statistics=2)
    learners.change(1, "")
    learners.replicas.statistics[0] = 1, 2
    learners.change(3, "", np.array([5, 6], np.float32))
    assert learners.replicas.statistics.tolist() == [[1, 2], [5, 6], [5, 6]]
    learners.change(3, "", np.array([7, 8], np.float32))
    assert learners.replicas.statistics.tolist() == [[1, 2], [5, 6], [5, 6]]


@pytest.mark.parametrize(("assignment", "second"), [("fixed", 1), ("first_come", 0)])
def test_tasks(assignment, second):
    """Learner 1 begins first: it takes its own slot, or the next. Gradients are clipped as the settings say."""
    learners, alone = learners_of(assignment=assignment), learners_of()
    learners.change(2, "")
    alone.change(1, "")
    learners.replicas.weights[...] = alone.replicas.weights[...] = 0.1
    slots = [slot_of(4, seed) for seed in range(2)]
    tasks = learners.tasks(slots)
    last, first = tasks[1](), tasks[0]()
    for result, i, seed in ((last, 1, second), (first, 0, 1 - second)):
        (task,) = alone.tasks([slot_of(4, seed)])
        expected = task()
        assert (result.loss, result.hits) == (expected.loss, expected.hits)
        np.testing.assert_array_equal(learners.replicas.gradients[i], alone.replicas.gradients[0])
        assert np.linalg.norm(learners.replicas.gradients[i]) == pytest.approx(0.01, rel=1e-5)


def test_a_host_is_asked_for_what_is_new():
    learners, asked = learners_of(), []

    def room() -> int:
        asked.append(len(bound(learners)))
        return 2 * SIZE

    assert learners.bind_within(room, 3, "") == "new learners need 2.9 KiB; only 2.0 KiB may be used"
    assert bound(learners) == []
    assert learners.bind_within(room, 2, "") is None
    assert learners.bind_within(room, 4, "") is None
    assert len(bound(learners)) == 4
    assert learners.bind_within(room, 1, "") is None
    assert asked == [0, 0, 2]


def test_a_learner_that_can_not_be_bound_leaves_the_others():
    learners = learners_of(most=2)
    assert learners.bind_within(lambda: 1 << 30, 3, "") == "no room"
    learners.change(2, "")
    assert len(learners.working) == 2
    with pytest.raises(MemoryError, match=r"^no room$"):
        learners.change(3, "")
    assert (len(learners.working), learners.replicas.count) == (2, 2)


class Refused(Learners):
    """`error` is what comes of every attempt to bind any."""

    error: Exception

    def bind(self, count: int, execution: str) -> None:
        raise self.error


def on_gpu(**settings) -> Learners:
    return learners_of(gpu=SimpleNamespace(machine=SimpleNamespace(found=SimpleNamespace(gpu="GPU 0"))), **settings)


def test_a_gpu_is_asked_before_fused_learners_are_tried():
    """By every rank, whatever this one needs; it says itself when learners on streams do not fit."""
    wide, counts, asked = plan_of(8), [], []

    def fused_plan(count: int) -> Plan:
        counts.append(count)
        return wide

    def room(size: int) -> int:
        asked.append(size)
        return size

    learners = on_gpu(kind=Refused, fused_plan=fused_plan)
    learners.error, need = DeviceFull("full"), fused_bytes(wide)
    assert learners.bind_within(lambda: room(need - 1), 2, "fused") == (
        f"fused learners need {in_words(need)}; only {in_words(need - 1)} may be used on GPU 0"
    )
    assert learners.bind_within(lambda: room(need), 2, "fused") == "full"
    learners._fused[2] = None
    assert learners.bind_within(lambda: room(0), 2, "fused") == "full"
    assert (counts, asked) == ([2, 2], [need - 1, need, 0])
    assert learners.bind_within(lambda: room(0), 2, "streams") == "full"
    learners.execution = "fused"
    assert learners.bind_within(lambda: room(0), 3, "fused") == "full"
    assert (counts, asked) == ([2, 2], [need - 1, need, 0])


def test_what_a_gpu_can_not_compute_is_an_error_only_where_it_runs_so_already():
    learners = on_gpu(kind=Refused)
    learners.error, learners.execution = DeviceError("no kernel"), "fused"
    assert learners.bind_within(lambda: 0, 2, "streams") == "no kernel"
    learners.execution = "streams"
    with pytest.raises(DeviceError, match=r"^no kernel$"):
        learners.bind_within(lambda: 0, 2, "streams")
