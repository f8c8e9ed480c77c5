"""A rank has room for many learners, and pays for those that it has."""

import ctypes
import gc
import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from mpibow import dense, flatten, relu
from mpibow.comm import Communicator, Single
from mpibow.data.pipeline_choice import PipelineChoice
from mpibow.errors import ConfigError
from mpibow.graph import Plan, Tensor
from mpibow.graph.bound import BoundPlan
from mpibow.job import memory
from mpibow.job.memory import Memory, learner_bytes
from mpibow.learn.replica import Replicas
from mpibow.run.opening import loading_of
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.train import iterate
from tests.run import tiny

MIB, PAGE = 1 << 20, mmap.PAGESIZE
UNITS = 100_000  # of 40 weights each: 15 MiB a row


def wide(image: Tensor) -> Tensor:
    return dense(relu(dense(flatten(image), UNITS)), tiny.CLASSES)


def resident() -> int:
    """Bytes of this process that no file backs, in memory or swapped out meanwhile."""
    gc.collect()  # what earlier tests left must not be freed between two calls
    ctypes.CDLL(None).malloc_trim(0)
    sizes = re.findall(r"^(?:Anonymous|Swap): +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert len(sizes) == 2
    return 1024 * sum(map(int, sizes))


def taken(replicas: Replicas) -> int:
    """Bytes of all its rows that are in memory, or swapped out: of their own pages, whatever else comes and goes."""
    weights, gradients, _ = replicas.all_rows(replicas.capacity)
    momenta = replicas.states["momenta"]
    pages = set[int]()
    for array in (weights, gradients, momenta if replicas.one else momenta.base):
        low, high = np.lib.array_utils.byte_bounds(array)
        with open("/proc/self/pagemap", "rb") as file:
            file.seek(low // PAGE * 8)
            entries = np.frombuffer(file.read((high // PAGE - low // PAGE + 1) * 8), np.uint64)
        pages |= set((np.flatnonzero(entries >> np.uint64(62)) + low // PAGE).tolist())
    return PAGE * len(pages)


def test_rows_of_replicas_take_memory_when_they_are_written():
    size = 4 * MIB  # 16 MiB a row, 3 GiB in all
    replicas = Replicas(64, size, "float32", states=("momenta",))
    assert taken(replicas) < 4 * MIB
    replicas.resize(2)  # momenta of new replicas are set to 0
    for row in replicas.row(0):
        row[...] = 1
    assert 48 * MIB < taken(replicas) < 72 * MIB


def test_one_copy_of_the_weights_takes_a_row_of_them():
    """Weights and momenta of 16 MiB each, and gradients of three learners."""
    replicas = Replicas(64, 4 * MIB, "float32", states=("momenta",), one=True)
    replicas.resize(3)
    for i in range(3):
        for row in replicas.row(i):
            row[...] = i
    assert (replicas.weights[:, 0] == 2).all()
    assert 72 * MIB < taken(replicas) < 96 * MIB


@pytest.mark.parametrize(("rule", "rows"), [("sma", 3), ("ssgd", 1)])  # weights, momenta, gradients; gradients alone
def test_a_learner_is_paid_for_when_it_comes(tmp_path, monkeypatch, rule, rows):
    bound: list[Plan] = []
    bind = Plan.bind

    def watched(plan: Plan, *arrays: np.ndarray, **more) -> BoundPlan:  # type: ignore[type-arg]
        bound.append(plan)
        return bind(plan, *arrays, **more)

    monkeypatch.setattr(Plan, "bind", watched)
    work = tiny.job(
        tmp_path, net=wide, precision="float32", batch_size=1, device="numpy", test=None, rule={"name": rule}
    )
    row = 4 * work.layout.size
    before, seen = resident(), []
    with Session(work, Single()) as session, Signals() as signals:
        for count in (1, 3):
            if session.iteration:
                session.coordinator.announce(session.iteration, (count,))
            for _ in range(5):
                iterate(session, signals)
            session.settle()
            seen.append((len(bound), resident() - before))
    (first, one), (then, three) = seen
    assert (first, then) == (1, 3)
    assert one < 16 * row  # weights, momentum, gradient; the rule's arrays; what an iteration has for a moment
    assert (2 * rows - 1) * row < three - one < (2 * rows + 3) * row
    assert session.replicas.capacity >= 3


class Billion(Memory):
    def free(self, comm: Communicator) -> int:
        return 10**9 // comm.local_size


def test_there_is_no_room_asked_for_that_no_memory_could_fill(tmp_path):
    """A system may refuse more than it has, even if nobody touches it: rows are as many as learners fit."""
    work = tiny.job(tmp_path, net=wide, precision="float32", batch_size=1, device="numpy", learners="auto", test=None)
    slots = 4 * (36 + 4 + 16)  # pixels, label and counter: two ahead, one in use, and the plan's inputs
    learner = learner_bytes(work.training_plan(), slots=slots, states=1)
    with Session(work, Single(), opened=tiny.with_memory(Billion())) as session:
        assert session.replicas.capacity == int(0.8 * 10**9 / learner) < 20
        assert session.tuning.state()["room"] == (session.replicas.capacity,)  # type: ignore[index]


ARRAY = 8 * 512  # weights, gradient, momenta, or the centre of tiny.plain in float64


@pytest.mark.parametrize(
    ("settings", "ranks", "arrays"),
    [
        ({"learners": 1}, 1, 3 + 1),
        ({"learners": 4}, 1, 12 + 1),
        ({"learners": 4, "rule": {"name": "ssgd"}}, 1, 6 + 1),
        ({"learners": 2}, 2, 2 * (6 + 3)),
    ],
)
def test_a_control_groups_limit_is_compared_before_anything_is_taken(tmp_path, monkeypatch, settings, ranks, arrays):
    left = 0
    monkeypatch.setattr(memory, "memory_left", lambda: left)
    work = tiny.job(tmp_path, **settings, iterations=1)
    with pytest.raises(ConfigError, match=r"its limit leaves 0 B: use fewer learners or a smaller batch_size, or") as e:
        tiny.run(work, ranks)
    assert not (tmp_path / "run").exists()
    assert str(e.value).startswith(f"memory: {ranks} rank(s) of a control group need ")
    others = (
        work.training_plan().arena_bytes
        + work.evaluation_plan().arena_bytes
        + loading_of(work, PipelineChoice("host", ""), 1).held.learner
    )
    need = arrays * ARRAY + ranks * work.config.learners * others  # type: ignore[operator]
    left = need
    tiny.run(work, ranks)
    left = need - 1
    with pytest.raises(ConfigError):
        tiny.run(work, ranks)


def test_resident_images_count(tmp_path):
    resident, host = (
        loading_of(tiny.job(tmp_path), PipelineChoice(kind, ""), 1).resident for kind in ("resident", "host")
    )  # type: ignore[arg-type]
    assert (resident, host) == (57 * 36, 0)
