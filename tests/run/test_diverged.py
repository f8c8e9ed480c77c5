"""A loss that is not finite: the run ends with its name, or the learner starts again and is counted."""

from pathlib import Path

import numpy as np
import pytest

from mpibow import dense, flatten
from mpibow.data import ArrayData
from mpibow.data.order import samples_at
from mpibow.errors import DivergedError
from mpibow.job import Job
from mpibow.ops.initialisers import ZERO
from mpibow.run.checkpoint import read_arrays
from mpibow.run.saving import find_whole
from mpibow.run.session import Session
from tests.run import tiny
from tests.run.test_resume import AT_END, arrays, copy, point, saving

BAD = int(samples_at(40, 1, tiny.COUNT, 1)[1][0])  # the sample that no net can stand; first met in iteration 3
PER_ITERATION = 4 * 3
RULES = ("auto", "quarter", "crossbow", "crossbow-3", "ssgd")
NEAR = ("auto", "ssgd")  # replicas keep nothing of where they were: alpha is 1, or all are alike


def meetings() -> list[tuple[int, int]]:
    """(iteration, learner of four) that meet the bad sample within 40 iterations of seed 1."""
    stream = samples_at(0, 40 * PER_ITERATION, tiny.COUNT, 1)[1]
    return [(place // PER_ITERATION, place % PER_ITERATION // 3) for place in np.flatnonzero(stream == BAD).tolist()]


def job(out: Path, ranks: int, **settings) -> Job:
    update = {"lr": 0.05, "momentum": 0.9}
    return tiny.job(
        out, **{"net": tiny.normed, "learners": 4 // ranks, "on_nan": "reset", "update": update, **settings}
    )


def bad(out: Path, ranks: int, **settings) -> Job:
    """A run that meets the bad sample."""
    images, labels = tiny.images()
    images = images.astype(np.float32) / 100
    images[BAD, 0, 0, 0] = np.nan
    train = ArrayData(images, labels, classes=tiny.CLASSES, name="bars with a hole")
    train.mean, train.std = (0.5,), (1.0,)
    images, labels = tiny.images(20, seed=1)
    test = ArrayData(images.astype(np.float32) / 100, labels, classes=tiny.CLASSES)
    return job(out, ranks, train=train, test=test, **settings)


@pytest.mark.parametrize("rule", RULES)
def test_reset(tmp_path, rule, capsys):
    """The same numbers on any number of ranks, every reset counted once and told on rank 0."""
    one, two, four = (tiny.run(bad(tmp_path / str(ranks), ranks, rule=rule), ranks) for ranks in (1, 2, 4))
    assert tiny.distance(two.weights, one.weights) < 1e-10
    assert tiny.distance(four.weights, one.weights) < 1e-10
    assert one.summary.resets == two.summary.resets == four.summary.resets == len(meetings()) > 5
    assert one.summary.accuracy > 0.6  # chance is 0.33; each reset costs its learner its statistics
    end = "it is left out" if rule == "ssgd" else "it starts again from the centre"
    told = [line for line in capsys.readouterr().err.splitlines() if "not finite" in line]
    expected = [
        f"iteration {iteration}: learner {learner} (rank {learner * ranks // 4}): "
        f"loss or gradient is not finite (loss nan); {end}"
        for ranks in (1, 2, 4)
        for iteration, learner in meetings()
    ]
    assert told == expected


@pytest.mark.parametrize("rule", RULES)
def test_after_a_reset_the_mean_is_the_true_one(tmp_path, rule):
    """Every reset moves the mean of the replicas; the next all-reduce but one tells all ranks."""
    seen: dict[int, float] = {}

    def measure(session: Session) -> None:
        rows, state = session.replicas.weights, session.engine.state()
        if "pending" not in state.own:  # else W lacks the steps that no all-reduce has carried
            mean = state.shared.get("mean", session.engine.centre)
            seen[session.iteration] = float(np.abs(rows.mean(axis=0) - mean).max())

    tiny.replay(bad(tmp_path, 1, rule=rule), before=measure)
    unclear = {iteration + after for iteration, _ in meetings() for after in range(1, 6 if rule == "crossbow-3" else 3)}
    clear = [far for iteration, far in seen.items() if iteration not in unclear]
    assert len(clear) > 2
    assert max(clear) < 1e-12
    assert any(seen.get(iteration, 0) > 1e-6 for iteration in unclear) == (rule not in NEAR)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("rule", RULES)
def test_resume_around_a_reset(tmp_path, rule, rank):
    """Also between the reset and the moment when all ranks agree on the mean again."""
    first = next(iteration for iteration, learner in meetings()[1:] if learner // 2 == rank)
    cuts = (first, first + 1, first + 2, first + 3)
    settings = {"rule": rule, "checkpoint": AT_END, "precision": "float32"}
    tiny.replay(bad(tmp_path / "whole", 2, **settings), 2, before=saving(*cuts))
    for cut in cuts:
        folder = copy(tmp_path / "whole", tmp_path / str(cut))
        found = tiny.run(bad(folder, 2, **settings), 2, resume=point(folder, cut))
        assert arrays(folder, 40) == arrays(tmp_path / "whole", 40), cut
        assert found.summary.resets == len(meetings())


@pytest.mark.parametrize("ranks", [1, 2])
def test_stop(tmp_path, ranks):
    iteration, learner = meetings()[0]
    every = {"every": "1 iteration", "keep": 1, "best": False}
    with pytest.raises(DivergedError) as caught:
        tiny.run(bad(tmp_path, ranks, on_nan="stop", checkpoint=every), ranks)
    assert iteration > 0
    kept = point(tmp_path, iteration)
    assert str(caught.value) == (
        f"iteration {iteration}: learner {learner} (rank {learner * ranks // 4}): loss or gradient is not finite "
        f"(loss nan); lower update.lr (now 0.05), or set on_nan=reset; the last checkpoint is {kept}"
    )
    assert kept.is_dir()
    resumed = tiny.run(bad(tmp_path, ranks, on_nan="reset"), ranks, resume="auto")
    assert resumed.summary.resets == len(meetings())


def test_stop_before_the_first_checkpoint(tmp_path):
    with pytest.raises(DivergedError, match=r"or set on_nan=reset; there is no checkpoint yet$"):
        tiny.run(bad(tmp_path, 1, on_nan="stop"))
    assert not (tmp_path / "run/checkpoints").exists()
    assert not (tmp_path / "run/summary.json").exists()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("on_nan", ["stop", "reset"])
@pytest.mark.parametrize("rule", RULES)
def test_a_rate_that_is_far_too_high(tmp_path, rule, on_nan):
    """Where the centre itself overflows no reset can help; the last checkpoint holds numbers."""
    every = {"every": "1 iteration", "keep": 2, "best": False}
    settings = {"rule": rule, "update": {"lr": 1e30}, "precision": "float32", "checkpoint": every}
    with pytest.raises(DivergedError) as caught:
        tiny.run(job(tmp_path, 2, on_nan=on_nan, **settings), 2)
    assert "; lower update.lr (now 1e+30)" in str(caught.value)
    path, _ = find_whole(tmp_path / "run", lambda text: None)
    assert str(caught.value).endswith(f"; the last checkpoint is {path}")
    assert all(np.isfinite(array).all() for array in read_arrays(path, "centre").values())
    assert not (tmp_path / "run/summary.json").exists()


@pytest.mark.filterwarnings("error")
def test_learners_that_all_fail_for_long(tmp_path):
    """The centre is finite, but so large that no loss is: resetting to it for ever would be no training."""
    settings = {"rule": "ssgd", "update": {"lr": 1e30}, "precision": "float32"}
    with pytest.raises(DivergedError) as caught:
        tiny.run(job(tmp_path, 2, **settings), 2)
    assert str(caught.value) in [
        f"iteration 20: no learner of rank {rank} had a finite loss in 20 iterations; "
        "lower update.lr (now 1e+30); there is no checkpoint yet"
        for rank in (0, 1)
    ]


@pytest.mark.filterwarnings("error")
def test_a_centre_that_overflows_at_the_end(tmp_path):
    """No loss tells: it is found before the run is called a success."""
    stop = {"epochs": None, "iterations": 1}
    with pytest.raises(DivergedError, match=r"^iteration 1: the centre is not finite; lower update.lr \(now 1e\+39\)"):
        tiny.train(tmp_path, update={"lr": 1e39}, precision="float32", stop=stop)


@pytest.mark.parametrize("rule", RULES)
def test_means_are_of_the_learners_that_are_not_reset(tmp_path, rule: str):
    """Each loss is ln 3, as all logits stay 0."""

    settings = {"net": lambda image: dense(flatten(image), 3, initial=ZERO), "update": {"lr": 1e-30}}
    tiny.run(bad(tmp_path, 2, rule=rule, log={"every": 5}, **settings), 2)
    _, *losses = [entry["loss"] for entry in tiny.events(tmp_path / "run", "train")]
    assert losses == pytest.approx([np.log(3)] * 7)
