"""Callbacks hear a run's events, end it on all ranks alike, write numbers, and are named where they raise."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

import mpibow as mb
from mpibow.errors import CallbackError, ConfigError
from tests.launching import mpirun, needs_mpi
from tests.refusals import refuses
from tests.run import tiny

SETTINGS = {
    "batch_size": 3, "learners": 2, "update": {"lr": 0.05}, "stop": {"epochs": 4}, "log": {"every": 5},
}  # fmt: skip
TWO_RANKS = """
import mpibow as mb
from tests.run import tiny

def net(image):
    return mb.dense(mb.flatten(image), 3)

heard = []

def listener(event):
    heard.append(event)
    if isinstance(event, mb.Evaluated) and event.epoch >= 2:
        return mb.STOP

if {every_rank}:
    listener.every_rank = True
images = tiny.images(60)
fitted = mb.fit(net, images, images, callbacks=[listener], batch_size=3, learners=1, stop={{"epochs": 9}})
print(fitted.rank, len(heard), fitted.summary.stopped, fitted.summary.iterations, flush=True)
"""


def net(image: mb.Tensor) -> mb.Tensor:
    return mb.dense(mb.flatten(image), 3)


def fit(*callbacks, **more) -> mb.Fitted:
    images = tiny.images(60)
    return mb.fit(net, images, images, callbacks=callbacks, **{**SETTINGS, **more})


def test_they_hear_what_happens_in_order_and_change_no_bits(here: Path):
    heard = []
    found = fit(heard.append)
    kinds = [type(event) for event in heard]
    assert kinds[-1] is mb.Ended
    assert [kind for kind in kinds if kind is not mb.Saved].count(mb.Evaluated) == 4
    assert kinds.count(mb.Iteration) == found.summary.iterations // 5
    assert mb.Saved in kinds
    evaluated = [event for event in heard if isinstance(event, mb.Evaluated)]
    assert [(event.data, event.epoch) for event in evaluated] == [("test", float(epoch)) for epoch in (1, 2, 3, 4)]
    assert evaluated[-1].accuracy == found.summary.accuracy
    assert [event.iteration for event in heard] == sorted(event.iteration for event in heard)
    assert heard[-1].stopped == found.summary.stopped == "stop.epochs 4"
    assert tiny.same_bits(found.weights, fit().weights)


def test_stop_ends_the_run_and_says_who_said_so(here: Path):
    def enough(event):
        return mb.STOP if isinstance(event, mb.Iteration) and event.iteration == 15 else None

    found = fit(enough)
    assert found.summary.stopped == "callback enough"
    assert 15 < found.summary.iterations <= 18
    assert found.summary.accuracy is not None
    again = fit(resume=found.summary.run)
    assert again.summary.stopped == "stop.epochs 4"
    assert again.summary.samples == 240


def test_numbers_go_to_the_events(here: Path):
    def twice(event):
        return {"twice": 2 * event.loss, "bad": float("nan")} if isinstance(event, mb.Evaluated) else None

    found = fit(twice)
    written = [event for event in found.history if event["event"] == "callback"]
    losses = [event["loss"] for event in found.history if event["event"] == "evaluate"]
    assert [event["twice"] for event in written] == [2 * loss for loss in losses]
    assert {(event["name"], event["bad"]) for event in written} == {("twice", None)}
    for line in (Path(found.summary.run) / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def broken(event):
    raise KeyError("nothing")


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        (broken, "callback broken: KeyError: 'nothing'"),
        (lambda event: "stop", "callback <lambda>: must return None, mpibow.STOP or numbers by name, got str"),
        (lambda event: {"a": "b"}, "callback <lambda>: a: must be a number, got str"),
        *(
            (
                lambda event, key=key: {key: 2.0},
                f"callback <lambda>: {key}: is an entry of every event; give it another name",
            )
            for key in ("epoch", "learners")
        ),
    ],
)
def test_one_that_is_wrong_ends_the_run_under_its_name(here: Path, callback, said):
    with refuses(said, CallbackError):
        fit(callback)


def test_early_stopping_by_what_is_not_measured(here: Path):
    said = "metric: of EarlyStopping must be one of loss, accuracy, got 'acuracy'; did you mean 'accuracy'?"
    with tiny.unchanged(here), refuses(said, ConfigError):
        fit(mb.EarlyStopping("acuracy"))


def test_early_stopping_is_that_of_the_settings(here: Path):
    bad = {"update": {"lr": 1e-9}, "stop": {"epochs": 9}}
    stopping = mb.EarlyStopping("accuracy", patience=2)
    same = fit(**{**bad, "stop": {"epochs": 9, "metric": "accuracy", "patience": 2}})
    assert same.summary.stopped == "stop.patience 2"
    for _ in range(2):  # it counts anew in each run
        found = fit(stopping, **bad)
        assert found.summary.stopped == "callback EarlyStopping"
        assert 0 <= found.summary.iterations - same.summary.iterations <= 2  # the ranks talk after the next iteration
    with pytest.raises(ConfigError, match="metric: of EarlyStopping must be one of loss, accuracy, got 'f1'"):
        fit(mb.EarlyStopping("f1"), **bad)
    with refuses("EarlyStopping.patience: must be an integer of at least 1 or null, got 0"):
        mb.EarlyStopping(patience=0)
    with refuses("callbacks: EarlyStopping needs validation or test data; give validation=0.1"):
        mb.fit(net, tiny.images(60), callbacks=[stopping], **SETTINGS)


@needs_mpi
@pytest.mark.parametrize("every_rank", [False, True])
def test_two_ranks_stop_after_the_same_iteration(tmp_path, every_rank):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TWO_RANKS.format(every_rank=every_rank)))
    done = mpirun(2, str(script), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (line.split() for line in sorted(done.stdout.splitlines()))
    assert first[2:] == second[2:]
    assert first[2:4] == ["callback", "listener"]
    assert int(first[1]) > 0
    assert (int(second[1]) > 0) is every_rank
