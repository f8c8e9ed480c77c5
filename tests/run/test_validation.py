"""Validation data choose: when to stop, which centre is the best. Test data only are looked at, at the end."""

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mpibow
from mpibow.comm import Single
from mpibow.config import load_mapping
from mpibow.data import Array, ArrayData, write_records
from mpibow.data.split import held_out
from mpibow.errors import CheckpointError
from mpibow.evaluate import main
from mpibow.job import Job, open_job
from mpibow.plot import draw, read_run
from mpibow.run import judge
from mpibow.run.checkpoint import read_arrays
from mpibow.run.describe import describe_job
from mpibow.run.first_lines import data_lines
from mpibow.train import train
from tests.refusals import exits, refuses
from tests.run import tiny

FRACTION = 0.2
LEARNT = {"stop": {"epochs": 12}, "checkpoint": {"every": "4 epochs"}, "learners": 2}
# Labels that say nothing of the images: nobody comes far on them
NONSENSE = ArrayData(
    tiny.images(40, seed=5)[0], np.random.default_rng(6).integers(0, 3, 40), classes=3, name="nonsense"
)


def loss_of(work: Job, weights: Mapping[str, Array]) -> float:
    """The mean loss of `tiny.plain` over the test data, in plain NumPy."""
    x = (tiny.TEST.images.reshape(tiny.TEST.count, -1) - work.scaling.mean[0]) / work.scaling.std[0]
    hidden = np.maximum(x @ weights["dense1.weight"].T + weights["dense1.bias"], 0)
    logits = hidden @ weights["dense2.weight"].T + weights["dense2.bias"]
    own = logits[np.arange(len(x)), tiny.TEST.labels]
    return float((np.log(np.exp(logits).sum(axis=1)) - own).mean())


@pytest.mark.parametrize("ranks", [1, 2])
def test_validation_data_choose_and_test_data_are_evaluated_at_the_end(ranks, tmp_path):
    work = tiny.job(tmp_path, validation=FRACTION, **LEARNT)
    assert (work.train.count, work.validation and work.validation.count) == (46, 11)
    found = tiny.run(work, ranks).summary
    events = tiny.events(tmp_path / "run", "evaluate")
    chosen, tested = ([event for event in events if event["data"] == name] for name in ("validation", "test"))
    assert len(chosen) == 12
    accuracies = [event["accuracy"] for event in chosen]
    assert [event["best"] for event in chosen] == [a > max([0.0, *accuracies[:i]]) for i, a in enumerate(accuracies)]
    assert (found.chosen_by, found.best_accuracy) == ("validation", max(accuracies))
    assert (found.validation_accuracy, found.validation_loss) == (accuracies[-1], chosen[-1]["loss"])
    assert events[-len(tested) :] == tested  # no test data before the end
    last = tested[0]
    assert (last["accuracy"], last["loss"]) == (found.accuracy, found.test_loss)
    best = (tmp_path / "run/checkpoints/best").resolve()
    if len(tested) == 2:
        assert Path(tested[1]["checkpoint"]).resolve() == best
        assert (tested[1]["accuracy"], tested[1]["loss"]) == (found.best_test_accuracy, found.best_test_loss)
    told = tiny.log(tmp_path)
    assert "train: 46 samples, validation: 11 split off, test: 20" in told
    assert not any("no validation data" in line for line in told)
    tests = f"test accuracy {found.accuracy:.2%}, test loss {found.test_loss:.4f}"
    assert f"epoch {last['epoch']:.2f}: {tests}, the last centre" in told
    assert f"validation accuracy {accuracies[-1]:.2%} (best {max(accuracies):.2%})" in str(found).splitlines()


def test_the_best_checkpoint_is_tested_too(tmp_path):
    """Validation data find nothing better after the first epochs, test data do."""
    work = tiny.job(tmp_path, validation=FRACTION, **LEARNT)
    trained = tiny.run(work)
    found = trained.summary
    last, best = (event for event in tiny.events(tmp_path / "run", "evaluate") if event["data"] == "test")
    assert (last["accuracy"], best["accuracy"]) == (found.accuracy, found.best_test_accuracy)
    assert (last["loss"], best["loss"]) == (found.test_loss, found.best_test_loss)
    stored = read_arrays(tmp_path / "run/checkpoints/best", "centre")
    assert last["loss"] == pytest.approx(loss_of(work, trained.weights), rel=1e-9)
    assert best["loss"] == pytest.approx(loss_of(work, stored), rel=1e-9)
    assert best["loss"] > last["loss"]
    assert Path(best["checkpoint"]).resolve() == (tmp_path / "run/checkpoints/best").resolve()
    assert any(line.endswith(f"the best checkpoint, {Path(best['checkpoint']).name}") for line in tiny.log(tmp_path))
    assert f", of the best checkpoint accuracy {found.best_test_accuracy:.2%}" in str(found)


def test_the_last_centre_may_be_the_best(tmp_path):
    found = tiny.run(tiny.job(tmp_path, validation=FRACTION, **{**LEARNT, "stop": {"epochs": 1}})).summary
    assert (found.best_test_accuracy, found.best_test_loss) == (found.accuracy, found.test_loss)


def test_a_best_checkpoint_that_is_gone_is_said(tmp_path, monkeypatch):
    def lost(path: Path, plan: object) -> None:
        raise CheckpointError(f"{path}: cannot be read: no such file or directory")

    work = tiny.job(tmp_path, validation=FRACTION, **LEARNT)
    monkeypatch.setattr(judge, "read_centre", lost)
    found = tiny.run(work, 2).summary
    assert (found.accuracy is None, found.best_test_accuracy) == (False, None)
    (line,) = (line for line in tiny.log(tmp_path) if "cannot be read" in line)
    assert line.endswith(": cannot be read: no such file or directory; the best checkpoint is not tested")


@pytest.mark.parametrize("hopeless", ["validation", "test"])
def test_stop_accuracy_goes_by_validation_data(hopeless, tmp_path):
    sets = {"validation": ArrayData(*tiny.images(30, seed=4), classes=3), "test": tiny.TEST}
    work = tiny.job(tmp_path, **{**sets, hopeless: NONSENSE}, **{**LEARNT, "stop": {"epochs": 20, "accuracy": 0.9}})
    found = tiny.run(work).summary
    if hopeless == "validation":
        assert (found.stopped, found.epochs_to_target) == ("stop.epochs 20", None)
        assert found.accuracy > 0.9  # which stops nothing
    else:
        assert found.stopped == "stop.accuracy 0.9"
        assert found.epochs_to_target == pytest.approx(found.epochs)
        assert found.accuracy < 0.7


def test_without_validation_data_a_line_says_that_test_data_choose(tmp_path):
    found = tiny.train(tmp_path, **LEARNT).summary
    assert (found.chosen_by, found.validation_accuracy, found.best_test_accuracy) == ("test", None, None)
    told = tiny.log(tmp_path)
    assert "train: 57 samples, test: 20" in told
    warned = (
        "no validation data: test data decide when to stop, and which checkpoint is the best; set data.validation=0.1"
    )
    assert told.count(warned) == 1
    assert {event["data"] for event in tiny.events(tmp_path / "run", "evaluate")} == {"test"}


def test_validation_data_alone(tmp_path):
    found = tiny.train(tmp_path, validation=FRACTION, test=None, **LEARNT).summary
    assert (found.chosen_by, found.accuracy, found.test_loss) == ("validation", None, None)
    assert found.best_accuracy == max(event["accuracy"] for event in tiny.events(tmp_path / "run", "evaluate"))
    assert "train: 46 samples, validation: 11 split off" in tiny.log(tmp_path)


def test_resumed_runs_have_the_same_split(tmp_path):
    whole = tiny.train(tmp_path / "whole", validation=FRACTION, **LEARNT)
    tiny.train(tmp_path / "parts", validation=FRACTION, **{**LEARNT, "stop": {"epochs": 5}})
    resumed = tiny.train(tmp_path / "parts", validation=FRACTION, resume=tmp_path / "parts/run", **LEARNT)
    assert tiny.same_bits(resumed.weights, whole.weights)
    names = ("accuracy", "best_accuracy", "validation_accuracy", "test_loss", "epochs")
    assert [getattr(resumed.summary, name) for name in names] == [getattr(whole.summary, name) for name in names]


def test_a_checkpoint_of_another_split_is_refused(tmp_path):
    tiny.train(tmp_path, validation=FRACTION, **LEARNT)
    for fraction in (0.5, None):
        with pytest.raises(CheckpointError) as caught:
            tiny.train(tmp_path, validation=fraction, resume=tmp_path / "run", **LEARNT)
        assert str(caught.value).split(": ", 1)[1] == (
            f"was made with validation_fraction 0.2, this run has {fraction}; "
            "resume with the same config, or start anew without --resume"
        )


def test_other_data_choose_anew(tmp_path):
    tiny.train(tmp_path, **{**LEARNT, "stop": {"epochs": 8}})
    now = tiny.job(tmp_path, validation=NONSENSE, **LEARNT)
    found = tiny.run(now, resume=tmp_path / "run").summary
    assert "test data decided which checkpoint was the best; the choice begins anew" in tiny.log(tmp_path)
    chosen = [event for event in tiny.events(tmp_path / "run", "evaluate") if event["data"] == "validation"]
    assert (len(chosen), chosen[0]["best"]) == (4, True)
    assert found.best_accuracy == max(event["accuracy"] for event in chosen)


def test_data_that_do_not_fit(tmp_path):
    images, labels = tiny.images(6)
    for data, said in (
        (
            ArrayData(images[:, :, :5], labels, name="low"),
            "low has images (1, 5, 6) uint8, data.train has (1, 6, 6) uint8",
        ),
        (ArrayData(images, labels + 1, name="more"), "more has 4 classes, data.train has 3"),
    ):
        with refuses(f"data.validation: {said}"):
            tiny.job(tmp_path, validation=data)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with the digits as records."""
    monkeypatch.chdir(tmp_path)
    for name, (images, labels) in (("train", tiny.images(60)), ("test", tiny.images(20, seed=1))):
        write_records(Path("data", name), zip(images, labels.tolist(), strict=True), classes=3)
    return tmp_path


RECORDS = {
    "name": "run", "model": {"name": "mlp"}, "batch_size": 3, "learners": 1, "update": {"lr": 0.05},
    "data": {"train": "data/train", "test": "data/test", "validation": 0.25}, "stop": {"epochs": 6},
    "checkpoint": {"every": "2 epochs"},
}  # fmt: skip


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    capsys.readouterr()
    with exits(0):
        main([*arguments, "--json"])
    found = json.loads(capsys.readouterr().out)
    return found


def test_a_runs_own_data_are_evaluated_by_name(here: Path, capsys):
    found = train(open_job(load_mapping(RECORDS)), Single()).summary
    validation = said(["runs/run", "validation", "--predictions", "told.csv"], capsys)
    assert (validation["accuracy"], validation["samples"]) == (found.validation_accuracy, 15)
    labels = np.arange(60) % 3
    rows = list(csv.DictReader(Path("told.csv").read_text().splitlines()))
    assert [int(row["sample"]) for row in rows] == np.flatnonzero(held_out(labels, 0.25, 1)).tolist()
    assert [int(row["label"]) for row in rows] == [labels[int(row["sample"])] for row in rows]
    assert said(["runs/run", "test"], capsys)["accuracy"] == found.accuracy
    assert said(["runs/run", "train"], capsys)["samples"] == 45
    assert said(["runs/run", "./data/train"], capsys)["samples"] == 60
    best = said(["runs/run/checkpoints/best", "validation"], capsys)
    assert best["accuracy"] == found.best_accuracy


def test_the_average_of_the_centre_is_evaluated(here: Path, capsys):
    found = train(open_job(load_mapping({**RECORDS, "ema": {"half_life": 30, "every": 2}})), Single()).summary
    for data, accuracy, loss in (
        ("validation", found.average_validation_accuracy, found.average_validation_loss),
        ("test", found.average_accuracy, found.average_test_loss),
    ):
        own = said(["runs/run", data, "--average"], capsys)
        assert own["accuracy"] == accuracy
        assert own["loss"] == pytest.approx(loss, rel=1e-6)
        assert own["loss"] != said(["runs/run", data], capsys)["loss"]


def test_a_run_without_an_average_has_none_to_evaluate(here: Path, capsys):
    train(open_job(load_mapping(RECORDS)), Single())
    with exits(2):
        main(["runs/run", "test", "--average"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: --average: runs/run/checkpoints/iteration-")
    assert said.endswith(" has no average of the centre; train with ema.half_life=SAMPLES")


def test_a_run_without_validation_data_has_none_to_evaluate(here: Path, capsys):
    train(open_job(load_mapping({**RECORDS, "data": {"train": "data/train"}})), Single())
    with exits(2):
        main(["runs/run", "validation"])
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith("has no validation data; give a folder of records, ./validation if that is its name")
    )


def test_moments_are_those_of_the_training_part(here: Path):
    work, images = open_job(load_mapping(RECORDS)), tiny.images(60)[0]
    assert work.scaling is not None
    own = images[~held_out(np.arange(60) % 3, 0.25, 1)]
    np.testing.assert_allclose(work.scaling.mean, own.mean(), rtol=1e-12)
    np.testing.assert_allclose(work.scaling.std, own.std(), rtol=1e-12)
    pixel = open_job(load_mapping({**RECORDS, "data": {**RECORDS["data"], "normalise": "pixel"}}))
    np.testing.assert_allclose(pixel.scaling.mean, own.mean(axis=0).ravel(), rtol=1e-12)


def test_check_prints_the_sets(here: Path):
    lines = describe_job(open_job(load_mapping(RECORDS)), (1,), (1 << 30,)).splitlines()
    sets = ["train: 45 samples", "validation: 15 samples", "test: 20 samples"]
    assert [line.split(" (")[0] for line in lines if " samples (1, 6, 6)" in line] == sets
    bare = replace(open_job(load_mapping(RECORDS)), validation=None)
    assert any(line.startswith("no validation data: ") for line in describe_job(bare, (1,), (1 << 30,)).splitlines())


def test_a_folder_of_validation_data(here: Path):
    work = open_job(load_mapping({**RECORDS, "data": {**RECORDS["data"], "validation": "data/test"}}))
    assert (work.train.count, work.validation and work.validation.count, work.held_out) == (60, 20, None)
    assert data_lines(work) == ["train: 60 samples, validation: 20, test: 20"]


def test_fit_splits_or_takes_validation_data(here: Path):
    settings = {"stop": {"epochs": 3}, "batch_size": 3, "learners": 1, "checkpoint": {"every": None}}
    fitted = mpibow.fit(tiny.plain, tiny.images(60), tiny.images(20), validation=0.25, name="split", **settings)
    assert (fitted.summary.samples, fitted.summary.chosen_by) == (135, "validation")
    given = mpibow.fit(tiny.plain, tiny.images(60), validation=tiny.images(20, seed=1), name="given", **settings)
    assert (given.summary.samples, given.summary.accuracy) == (180, None)
    assert given.summary.validation_accuracy is not None
    ratings = {"user": np.arange(60) % 5, "item": np.arange(60) % 4, "rating": np.ones(60)}
    rated = mpibow.fit(
        lambda user, item, rating: mpibow.matrix_factorisation(user, item, rating, users=5, items=4, factors=2),
        ratings, validation=0.25, name="rated", **settings,
    )  # fmt: skip
    assert (rated.summary.samples, rated.summary.chosen_by) == (135, "validation")
    assert rated.summary.validation_loss is not None


def test_the_plot_tells_the_sets_apart(tmp_path):
    pytest.importorskip("matplotlib")
    tiny.train(tmp_path, validation=FRACTION, **LEARNT)
    figure = draw([read_run(tmp_path / "run")], ["accuracy"], "samples")
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert len(lines["validation"].get_xdata()) == 12
    assert len(lines["test"].get_xdata()) == 1
