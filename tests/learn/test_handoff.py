"""A learner's batch as commands, on the caller's thread and on one that waits for it, gives what Python gives."""

import ctypes
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mpibow.data import Slot
from mpibow.graph import Array, choose_layout, compile_plan, initial_weights
from mpibow.graph.kernel import Handoff
from mpibow.kernels import onednn_set
from mpibow.learn.learners import Learner, Result, fixed
from mpibow.learn.scheduler import Scheduler
from mpibow.models import MODELS
from mpibow.models.classifier import classifier
from mpibow.trace import Recorder
from tests.data.slots import image_slot
from tests.models.beside_numpy import needs_onednn

pytestmark = needs_onednn

SHAPE, IMAGE = (1, 28, 28), np.dtype(np.float32)
LENET = classifier(partial(MODELS["lenet"], classes=10), SHAPE, "float")


def learners(batch: int, count: int, commands: bool = True) -> list[Learner]:
    """Of LeNet, alike; at batch 1 gradients of its dense layers are factors."""
    kernels = onednn_set() if commands else replace(onednn_set(), batch=None)
    graph = LENET(batch)
    layout = choose_layout(graph, kernels, factors=True)
    plan = compile_plan(graph, layout, kernels, "float32", training=True)
    weights = initial_weights(layout, 1, "float32")
    gradients = [np.zeros_like(weights) for _ in range(count)]
    return [Learner(plan.bind(weights.copy(), gradient), gradient) for gradient in gradients]


def slot_of(batch: int, seed: int) -> Slot:
    slot, generator = image_slot(batch, SHAPE, IMAGE), np.random.default_rng(seed)
    slot.arrays["image"][...] = generator.standard_normal((batch, *SHAPE))
    slot.arrays["label"][...] = generator.integers(0, 10, batch)
    return slot


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(handoff=onednn_set().handoff, cores=2)
    yield made
    made.close()


def computed(those: Sequence[Learner], scheduler: Scheduler, seed: int = 0) -> tuple[list[Result], list[Array]]:
    slots = [slot_of(3, seed + i) for i in range(len(those))]
    return scheduler.run(fixed(those, slots)), [learner.gradient.copy() for learner in those]


@pytest.mark.parametrize("count", [1, 2, 3])  # the last one more than there are cores
def test_results_and_gradients_are_those_of_python(scheduler: Scheduler, count):
    ours, theirs = learners(3, count), learners(3, count, commands=False)
    for seed in range(3):
        found, gradients = computed(ours, scheduler, seed)
        expected, others = computed(theirs, Scheduler(), seed)
        assert found == expected
        np.testing.assert_array_equal(gradients, others)


def test_a_slot_is_released_once_when_its_batch_is_over(scheduler: Scheduler):
    released, slots = [], [slot_of(3, i) for i in range(2)]
    for i, slot in enumerate(slots):
        slot.release = partial(released.append, i)
    scheduler.run(fixed(learners(3, 2), slots))
    assert sorted(released) == [0, 1]


def test_inputs_of_another_type_are_copied_by_python(scheduler: Scheduler):
    slots = [slot_of(3, i) for i in range(2)]
    for slot in slots:
        slot.arrays["label"] = slot.arrays["label"].astype(np.int64)
    assert scheduler.run(fixed(learners(3, 2), slots)) == computed(learners(3, 2), scheduler)[0]


def test_what_is_not_finite_is_seen(scheduler: Scheduler):
    those = learners(3, 2)
    slots = [slot_of(3, i) for i in range(2)]
    slots[1].arrays["image"][...] = np.nan
    found = scheduler.run(fixed(those, slots))
    assert [result.finite for result in found] == [True, False]


def test_a_gradient_of_one_weight_that_overflows_is_seen_once(scheduler: Scheduler):
    (learner,) = learners(3, 1)
    first = learner.plan.plan.layout.spans[0]
    for name, weight in learner.plan._weights.items():
        if name in (first.name, first.name.replace("weight", "bias")):
            weight[...] = name != first.name  # so its output is 1 whatever comes in
    slots = [slot_of(3, i) for i in range(2)]
    slots[0].arrays["image"][...] = 1e25
    expected = [(False, ((first.offset, first.offset + first.size),)), (True, ())]
    for types in (np.int32, np.int64):  # by commands, and by Python, whose sum the next batch does not have
        slots[0].arrays["label"] = slots[0].arrays["label"].astype(types)
        found = [scheduler.run(fixed([learner], [slot]))[0] for slot in slots]
        assert [(result.finite, tuple(result.spoilt)) for result in found] == expected


def test_a_trace_has_every_batch():
    trace = Recorder()
    trace.on = True
    scheduler = Scheduler(trace, handoff=onednn_set().handoff, cores=2)
    computed(learners(3, 2), scheduler)
    scheduler.close()
    assert {row for spans in trace._lists for row, *_ in spans} == {"learner 0", "learner 1"}


def test_commands_that_fail(scheduler: Scheduler):
    those = learners(3, 2)
    table = those[1]._batch.run.table
    whole = table.copy()
    table[0] = ctypes.cast(ctypes.CDLL(None)["abs"], ctypes.c_void_p).value, 7, 0, 0, 0
    with pytest.raises(RuntimeError, match=f"command 0 of {len(table)} failed"):
        computed(those, scheduler)
    table[...] = whole
    expected, _ = computed(learners(3, 2), scheduler)
    assert computed(those, scheduler)[0] == expected


@pytest.mark.parametrize("handoff", [Handoff, pytest.param(None, id="compiled")])
def test_a_signal_ends_the_wait_for_a_thread(handoff):
    scheduler, over = Scheduler(handoff=handoff or onednn_set().handoff, cores=2), threading.Event()
    scheduler.run([int, int])  # its thread is there
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    threading.Timer(1.0, over.set).start()
    with pytest.raises(KeyboardInterrupt):
        scheduler.run([int, partial(over.wait, 720)])
    assert over.is_set()  # its thread was waited for, and there is a new one
    assert scheduler.run([int, str]) == [0, ""]
    scheduler.close()
