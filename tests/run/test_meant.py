"""Runs that cannot be meant: each has its line, or is refused, and others have none."""

import numpy as np
import pytest

import mpibow as mb
from mpibow.graph import Tensor
from mpibow.run.evaluate import Evaluation, is_chance
from tests.refusals import refuses
from tests.run import tiny
from tests.run.test_resume import EVERY

PERIOD = ": the centre moves when a period ends, and not before; set "


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ") and "core" not in line
    ]


def dead(image: Tensor) -> Tensor:
    """Its logits are the same for all images."""
    return mb.dense(0.0 * mb.flatten(image), tiny.CLASSES)


def test_a_batch_is_at_most_all_samples(tmp_path):
    tiny.job(tmp_path, batch_size=57)
    with refuses("batch_size: must be at most the 57 samples of bars, got 58"):
        tiny.job(tmp_path, batch_size=58)
    with refuses("batch_size: must be at most the 28 samples of bars, got 57"):
        tiny.job(tmp_path, batch_size=57, validation=0.5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"learners": 3, "batch_size": 19}, []),
        (
            {"learners": 4, "batch_size": 19},
            [
                "warning: 4 learners of batch_size 19 read 76 samples in an iteration, and an epoch has 57: use at "
                "most 3 learners, or a smaller batch_size"
            ],
        ),
        ({"learners": 2, "rule": {"name": "diloco", "period": 9}}, []),
        (
            {"learners": 2, "rule": {"name": "diloco"}},
            [f"warning: rule.period is 500 iterations, and an epoch has 9.5{PERIOD}rule.period=1"],
        ),
        ({"learners": 1, "rule": {"name": "local_sgd", "period": 500}}, []),  # one learner's centre is itself
        (
            {"learners": 2, "batch_size": 1, "rule": {"name": "post_local_sgd", "then": {"epoch": 3, "period": 30}}},
            [f"warning: rule.then.period is 30 iterations, and an epoch has 28.5{PERIOD}rule.then.period=2"],
        ),
    ],
)
def test_more_than_an_epoch(tmp_path, capsys, settings, expected):
    tiny.train(tmp_path, **{"iterations": 1, **settings})
    assert lines(capsys) == expected


@pytest.mark.parametrize(
    ("accuracy", "classes", "count", "chance"),
    [
        (0.1111, 10, 360, True), (0.13, 10, 360, False), (0.09, 10, 10000, True), (0.108, 10, 10000, False),
        (0.5, 2, 10000, True), (0.52, 2, 10000, False), (0.62, 2, 20, True), (0.63, 2, 20, False), (1.0, 1, 50, False),
        (None, 2, 50, False),
    ],
)  # fmt: skip
def test_chance(accuracy, classes, count, chance):
    assert is_chance(Evaluation(1.0, accuracy, count, 0.0), classes) == chance


def test_chance_is_said_after_three_evaluations_once(tmp_path, capsys):
    def said(epochs: int, resume: str | None = None) -> list[str]:
        tiny.train(tmp_path, net=dead, stop={"epochs": epochs}, checkpoint=EVERY, resume=resume)
        return lines(capsys)

    assert said(2) == []
    line = (
        "warning: the accuracy is that of chance, 35.00%, in 3 evaluations: lower update.lr (now 0.05; try train "
        "--find-lr), and check labels and data.normalise"
    )
    assert said(7, "auto") == [line]
    assert said(9, "auto") == []


def test_losses_have_no_chance(tmp_path, capsys):
    inputs, settings = np.eye(9, dtype="f4"), {"update": {"lr": 1e-9}, "stop": {"epochs": 5}, "learners": 1}
    mb.fit(
        lambda x: mb.dense(x, 1),
        (inputs, inputs[:, :1]),
        (inputs, inputs[:, :1]),
        loss=mb.mse_loss,
        out=str(tmp_path),
        batch_size=3,
        **settings,
    )
    assert lines(capsys) == []


THEN = "from here on, and was 0: "
COSINE = {"lr": 0.05, "schedule": {"name": "cosine"}}


@pytest.mark.parametrize(
    ("epochs", "update", "expected"),
    [
        (
            10,
            COSINE,
            [f"0.025 {THEN}stop.epochs changed; update.schedule.epochs=5 keeps the former schedule"],
        ),
        (10, {"lr": 0.05, "schedule": {"name": "cosine", "epochs": 5}}, []),
        (10, {"lr": 0.05}, [f"0.05 {THEN}stop.epochs, update.schedule changed"]),
        (5, COSINE, []),
    ],
)
def test_a_rate_that_jumps_at_a_resume(tmp_path, capsys, epochs, update, expected):
    tiny.train(tmp_path, stop={"epochs": 5}, update=COSINE, checkpoint=EVERY)
    assert not any("rate" in line for line in lines(capsys))
    tiny.train(tmp_path, stop={"epochs": epochs}, update=update, checkpoint=EVERY, resume="auto")
    found = [line.partition("the learning rate is ")[2] for line in lines(capsys) if "learning rate" in line]
    assert found == expected


def test_other_learners_leave_steps_that_waited(tmp_path, capsys):
    rule = {"name": "local_sgd", "period": 9}
    settings = {"rule": rule, "checkpoint": EVERY}

    tiny.killed(tiny.job(tmp_path, learners=2, **settings), 12)
    tiny.train(tmp_path, learners=3, resume="auto", **settings)
    line = (
        "averaging restarts from the centre, without the steps of 3 iterations that waited for the end of their period"
    )
    assert f"learners were 2: {line}" in capsys.readouterr().err
