"""The average of the centre: its formula, that it only reads, and that a run that is cut has the same."""

from pathlib import Path

import numpy as np
import pytest

from mpibow import dense, flatten, relu
from mpibow.config.schema import Ema
from mpibow.graph import Tensor
from mpibow.kernels.passes import PIECE
from mpibow.run.average import Average
from mpibow.run.checkpoint import read_arrays
from mpibow.run.describe import describe_job
from mpibow.run.header import Averaged
from mpibow.run.session import Session
from tests.refusals import refuses
from tests.run import tiny

EMA = {"half_life": 50, "every": 3}


def stored(folder: Path, iteration: int = 40) -> dict:
    return read_arrays(folder / f"run/checkpoints/iteration-{iteration:010d}", "average")


def test_by_hand():
    """Half of what was is left after 100 samples; the first centre is all of it."""
    average = Average(Ema(100, every=3), Averaged(1000, 0.0))
    assert [average.due(iteration) for iteration in (2, 3, 4)] == [False, True, False]
    assert average.weights is None
    average.follow(np.array([2.0, 0.0]), 1100)
    assert average.weights is not None
    np.testing.assert_array_equal(average.weights, [2.0, 0.0])
    average.follow(np.array([0.0, 3.0]), 1200)  # shares 1/4 and 1/2, of 3/4
    np.testing.assert_allclose(average.weights, [2 / 3, 2.0])
    assert average.entry() == {"position": 1200, "share": 0.75}


@tiny.rules("auto", "crossbow", "ssgd", "independent")
def test_it_is_of_the_centres_and_changes_none(tmp_path, rule):
    settings = {"rule": rule, "learners": 2, "net": tiny.normed, "checkpoint": {}}
    plain = tiny.train(tmp_path / "plain", **settings)
    centres = []

    def look(session: Session) -> None:
        if session.iteration and session.iteration % 3 == 0:
            session.read_centre()
            centres.append((session.position, session.plan.layout.unpacked(session.engine.centre.copy())))

    (found,) = tiny.watch(tmp_path / "with", ema=EMA, before=look, **settings)
    assert tiny.same_bits(found.weights, plain.weights)
    shares = [0.5 ** ((40 * 6 - position) / 50) for position, _ in centres]
    average = stored(tmp_path / "with")
    for name in centres[0][1]:
        expected = sum(share * centre[name] for share, (_, centre) in zip(shares, centres, strict=True)) / sum(shares)
        np.testing.assert_allclose(average[name], expected, rtol=1e-9, atol=1e-12)


def test_it_is_evaluated_beside_the_centre(tmp_path):
    tiny.train(tmp_path, ema=EMA)
    centre, average = (tiny.events(tmp_path / "run", kind) for kind in ("evaluate", "average"))
    assert [each["iteration"] for each in average] == [each["iteration"] for each in centre]
    assert average[-1]["loss"] != centre[-1]["loss"]
    assert "the average of the centre" in (tmp_path / "run/log.txt").read_text()


@pytest.mark.parametrize("validation", [None, 0.2])
def test_the_summary_has_it(tmp_path, validation):
    """And it is tested at the end, where the test data chose nothing."""
    found = tiny.train(tmp_path, ema=EMA, validation=validation)
    summary = tiny.summary(tmp_path)
    chosen = [each for each in tiny.events(tmp_path / "run", "average") if each["data"] == (found.summary.chosen_by)]
    tested = [each for each in tiny.events(tmp_path / "run", "average") if each["data"] == "test"]
    assert len(tested) == (len(chosen) if validation is None else 1)
    for name, value in (("average_accuracy", tested[-1]["accuracy"]), ("average_test_loss", tested[-1]["loss"])):
        assert summary[name] == getattr(found.summary, name) == value
    if validation is None:
        assert found.summary.average_validation_loss is None
    else:
        assert found.summary.average_validation_accuracy == chosen[-1]["accuracy"]
        assert found.summary.average_validation_loss == chosen[-1]["loss"]
        assert f"the average of the centre: validation accuracy {chosen[-1]['accuracy']:.2%}" in str(found.summary)
    assert f"the average of the centre: test accuracy {tested[-1]['accuracy']:.2%}" in str(found.summary)
    assert tiny.train(tmp_path / "without").summary.average_test_loss is None


def test_training_gives_it_back(tmp_path):
    found = tiny.train(tmp_path, 2, ema=EMA, net=tiny.normed, checkpoint={})
    assert found.average is not None
    assert tiny.same_bits(found.average, stored(tmp_path))
    assert tiny.train(tmp_path / "without").average is None


def test_the_check_counts_its_memory(tmp_path):
    work = tiny.job(tmp_path, ema=EMA, net=wide)
    size = work.layout.size * 8 / (1 << 20)
    line = f"and {size:.1f} MiB of the host's memory for the average of the centre"
    assert line in describe_job(work, (1,), (1 << 30,))
    assert "average of the centre" not in describe_job(tiny.job(tmp_path, net=wide), (1,), (1 << 30,))


def wide(image: Tensor) -> Tensor:
    return dense(relu(dense(flatten(image), 9000)), tiny.CLASSES)


def test_many_weights_are_averaged_like_few():
    """A piece at a time."""
    size = 3 * PIECE // 2
    average = Average(Ema(100), Averaged(0, 0.0))
    average.follow(np.ones(size), 100)
    average.follow(np.zeros(size), 200)
    assert average.weights is not None
    np.testing.assert_allclose(average.weights, np.full(size, 1 / 3))


def test_it_needs_a_half_life(tmp_path):
    with refuses("ema.half_life: is required, a number above 0"):
        tiny.job(tmp_path, ema={})
