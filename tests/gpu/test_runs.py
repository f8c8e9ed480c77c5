"""Whole runs with `device: cuda`: the oracle's numbers and NumPy's, the same bits however they go on their way."""

from pathlib import Path

import numpy as np
import psutil
import pytest

from mpibow.comm import Single
from mpibow.errors import DivergedError
from mpibow.run.saving import newest_first
from mpibow.run.session import Session
from mpibow.run.signals import Signals
from mpibow.train import iterate
from tests.gpu import opened
from tests.refusals import refuses
from tests.run import test_diverged, tiny
from tests.run.test_diverged import bad, meetings  # noqa: F401  bad is a fixture
from tests.run.test_onednn import residual

pytestmark = opened.needs_gpu(pytest.mark.timeout(250))

WAYS = {
    "streams": {"execution": "streams"},
    "one by one": {"execution": "streams", "graphs": False},
    "fused": {"execution": "fused"},
    "fused, one by one": {"execution": "fused", "graphs": False},
}
FEW = {"epochs": None, "iterations": 10}
SOME = ("auto", "crossbow-3", "ssgd")  # rules
CHANGES = {5: (1,), 12: (3,), 13: (2,), 30: (1,)}  # learners, announced at these iterations
MIB = 1 << 20


def job(out: Path, **settings) -> tiny.Job:
    """In exact float32, unless told otherwise: what is compared then differs in the order of sums alone."""
    return tiny.job(out, **opened.on_gpu(**{"net": residual, "precision": "float32", **settings}))


def on_host(out: Path, **settings) -> tiny.Job:
    return tiny.job(out, **{"net": residual, "precision": "float64", "device": "numpy", **settings})


# The right numbers


@pytest.mark.parametrize("rule", tiny.RULES.values(), ids=tiny.RULES.keys())
@pytest.mark.parametrize("net", [tiny.normed, residual], ids=["normed", "residual"])
def test_as_numpy(tmp_path, net, rule):
    """Loss, weights and statistics, with dropout; for few iterations, as rounding grows in them."""
    settings = {"net": net, "rule": rule, "learners": 2, "stop": FEW, "log": {"every": 1}}
    fast, slow = tiny.run(job(tmp_path / "gpu", **settings)), tiny.run(on_host(tmp_path / "host", **settings))
    assert tiny.distance(fast.weights, slow.weights) < 1e-3
    mine, its = ([line["loss"] for line in tiny.events(tmp_path / name / "run", "train")] for name in ("gpu", "host"))
    assert len(mine) == len(its) > 1
    assert [loss is None for loss in mine] == [loss is None for loss in its]
    np.testing.assert_allclose(np.array(mine, float), np.array(its, float), rtol=1e-3, atol=1e-6)
    assert fast.summary.accuracy == pytest.approx(slow.summary.accuracy, abs=0.051)  # one image of twenty
    assert fast.summary.samples == slow.summary.samples


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16", "fp16"])
def test_every_precision_learns(tmp_path, precision):
    """Bars that are plain to see; chance is 0.33. Norms of 16 bits take channels by eight."""
    stop = {"epochs": None, "iterations": 200}
    found = tiny.run(job(tmp_path, net=opened.by_eights, precision=precision, learners=2, stop=stop, batch_size=8))
    assert found.summary.accuracy >= 0.8
    assert all(array.dtype == np.float32 for array in found.weights.values())


# The same bits


@pytest.mark.parametrize("rule", SOME)
def test_graphs_overlap_and_another_time_are_the_same_bits(tmp_path, rule):
    """And what a learner's stream does while others are at work."""
    settings = {"rule": tiny.RULES[rule], "learners": 3, "execution": "streams"}
    ways = {"first": {}, "again": {}, "sequential": {"overlap": False}}
    ways |= {"one by one": {"graphs": False}, "one by one, sequential": {"graphs": False, "overlap": False}}
    found = {name: tiny.run(job(tmp_path / name, **settings, **way)).weights for name, way in ways.items()}
    for name, weights in found.items():
        assert tiny.same_bits(weights, found["first"]), name


def test_what_was_measured_to_be_faster_is_replayed(tmp_path):
    settings = {"execution": "auto", "stop": {"epochs": None, "iterations": 1500}, "tuner": {"window": 0.2}}
    first = tiny.run(job(tmp_path / "first", learners=3, **settings))
    assert [event["settled"] for event in tiny.events(tmp_path / "first/run", "tuner")][-1:] == [True]
    again = tiny.run(job(tmp_path / "again", learners=f"replay({tmp_path}/first/run)", **settings))
    assert again.summary.execution == first.summary.execution
    assert tiny.same_bits(again.weights, first.weights)


@pytest.mark.parametrize("rule", SOME)
@pytest.mark.parametrize("net", [tiny.plain, tiny.normed, residual], ids=["plain", "normed", "residual"])
def test_fused_learners_are_those_on_streams(tmp_path, net, rule):
    settings = {"net": net, "rule": tiny.RULES[rule], "learners": 4, "stop": FEW}
    streams, fused, again, uncaptured = (
        tiny.run(job(tmp_path / name, **settings, **way)).weights
        for name, way in (
            ("streams", WAYS["streams"]), ("fused", WAYS["fused"]), ("again", WAYS["fused"]),
            ("uncaptured", WAYS["fused, one by one"]),
        )
    )  # fmt: skip
    assert tiny.distance(fused, streams) < 1e-3
    assert tiny.same_bits(fused, again)
    assert tiny.same_bits(fused, uncaptured)


@pytest.mark.parametrize("way", ["streams", "fused"])
@pytest.mark.parametrize("rule", ["auto", "crossbow-3"])
def test_a_run_goes_on_bit_for_bit(tmp_path, rule, way):
    every = {"every": "7 iterations", "keep": 9}
    settings = {"rule": tiny.RULES[rule], "learners": 2, "checkpoint": every, **WAYS[way]}
    whole = tiny.run(job(tmp_path / "whole", **settings)).weights
    checkpoints = list(newest_first(tmp_path / "whole/run/checkpoints"))
    assert len(checkpoints) > 4
    for checkpoint in checkpoints:
        resumed = tiny.run(job(tmp_path / checkpoint.name, **settings), resume=checkpoint).weights
        assert tiny.same_bits(resumed, whole), checkpoint.name


@pytest.mark.parametrize("rule", SOME)
def test_evaluating_and_saving_only_read(tmp_path, rule):
    settings = {"rule": tiny.RULES[rule], "learners": 2}
    plain = tiny.run(job(tmp_path / "plain", **settings)).weights
    often = {"evaluate": {"every": 0.1, "batch_size": 7}, "checkpoint": {"every": "3 iterations"}}
    assert tiny.same_bits(tiny.run(job(tmp_path / "often", **settings, **often)).weights, plain)


@pytest.mark.parametrize("first", ["cuda", "numpy"])
def test_another_device_goes_on_from_a_checkpoint(tmp_path, first):
    """What is stored depends neither on layouts nor on the device."""
    settings = {"learners": 2, "checkpoint": {"every": "30 iterations", "keep": 9}}
    here, there = (job, on_host) if first == "cuda" else (on_host, job)
    whole = tiny.run(here(tmp_path / "whole", **settings, **{} if first == "cuda" else {"precision": "float32"}))
    checkpoint = tmp_path / "whole/run/checkpoints/iteration-0000000030"
    then = there(tmp_path / "then", **settings, **{} if first == "numpy" else {"precision": "float32"})
    assert tiny.distance(tiny.run(then, resume=checkpoint).weights, whole.weights) < 1e-3


@pytest.mark.parametrize("way", ["streams", "fused"])
def test_learners_come_and_go(tmp_path, way):
    def seen(name: str) -> tiny.Replay:
        def change(session: Session) -> None:
            if (counts := CHANGES.get(session.iteration)) is not None:
                session.coordinator.announce(session.iteration, counts)

        (found,) = tiny.replay(
            job(tmp_path / name, rule=tiny.RULES["auto"], learners=3, prefetch=1, **WAYS[way]),
            before=change, settle=False,
        )  # fmt: skip
        return found

    one, again = seen("a"), seen("b")
    assert tiny.same_bits(one.weights, again.weights)
    assert {len(slots) for slots in one.samples} == {1, 2, 3}


# What goes wrong


@pytest.mark.parametrize("way", ["streams", "fused"])
@pytest.mark.parametrize("rule", ["auto", "crossbow", "ssgd"])
@pytest.mark.usefixtures("bad")
def test_a_learner_that_meets_nan_starts_again(tmp_path, rule, way):
    work = test_diverged.job(tmp_path, 1, rule=tiny.RULES[rule], **opened.on_gpu(precision="float32", **WAYS[way]))
    found = tiny.run(work)
    assert meetings()[-1][0] == work.config.stop.iterations - 1  # also in the last one
    assert [name for name, array in found.weights.items() if not np.isfinite(array).all()] == []
    assert found.summary.resets == len(meetings()) > 5


@pytest.mark.usefixtures("bad")
def test_a_learner_that_meets_nan_ends_the_run(tmp_path):
    iteration, learner = meetings()[0]
    with refuses(
        f"iteration {iteration}: learner {learner} (rank 0): loss or gradient is not finite (loss nan); "
        "lower update.lr (now 0.05), or set on_nan=reset; there is no checkpoint yet",
        DivergedError,
    ):
        tiny.run(test_diverged.job(tmp_path, 1, **opened.on_gpu(precision="float32", on_nan="stop")))


# Memory


@pytest.mark.parametrize("way", ["streams", "fused"])
def test_memory_is_flat_over_10000_iterations(tmp_path, way):
    stop = {"epochs": None, "iterations": 10**6}
    work = job(tmp_path, net=tiny.normed, learners=4, stop=stop, log={"every": 10**6}, test=None, **WAYS[way])
    process, seen = psutil.Process(), []
    with Session(work, Single()) as session, Signals() as signals:
        for i in range(10_001):
            iterate(session, signals)
            if i in (1000, 10_000):
                session.settle()
                free, _ = opened.device().driver.memory()
                seen.append((free, process.memory_info().rss))
    (free, resident), (free_then, resident_then) = seen
    assert free - free_then < MIB
    assert resident_then - resident < 8 * MIB  # nine thousand times a kilobyte would show
