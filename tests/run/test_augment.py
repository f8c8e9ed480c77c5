"""Augmentation in a run: the same bits however it goes on its way, in training only; and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpibow
from mpibow.errors import ConfigError
from mpibow.models.settings import Augmentation
from tests.launching import run
from tests.run import tiny
from tests.run.processes import write_run

SHIFT = Augmentation(pad=1, flip=True)


def kinds(work: tiny.Job, training: bool) -> list[str]:
    return [node.op.kind for node in work.build(3, training).nodes]


def test_it_comes_first_and_in_training_only(tmp_path: Path) -> None:
    work = tiny.job(tmp_path, augmentation=SHIFT)
    plain = kinds(tiny.job(tmp_path), False)
    assert kinds(work, True) == ["augment", *plain]
    assert kinds(work, False) == plain
    assert "augment1[3, 1, 6, 6]" in str(work.training_plan())
    assert "augment" not in str(work.evaluation_plan())
    assert kinds(tiny.job(tmp_path, augmentation=Augmentation()), True) == plain


def test_a_crop_is_the_centre_in_evaluation(tmp_path: Path) -> None:
    work = tiny.job(tmp_path, augmentation=Augmentation(crop=4))
    assert kinds(work, True)[0] == "augment"
    assert kinds(work, False)[0] == "centre_crop"
    for training in (True, False):
        assert work.build(3, training).tensors["normalise1"].shape == (3, 1, 4, 4)


def test_it_changes_what_is_learnt_and_not_with_ranks(tmp_path: Path) -> None:
    one, two = (
        tiny.run(tiny.job(tmp_path / str(ranks), augmentation=SHIFT, learners=4 // ranks), ranks).weights
        for ranks in (1, 2)
    )
    without = tiny.run(tiny.job(tmp_path / "without", learners=4)).weights
    assert tiny.distance(two, one) < 1e-10
    assert tiny.distance(without, one) > 1e-3


def test_resume_is_the_whole_run(tmp_path: Path) -> None:
    def job(stop: int) -> tiny.Job:
        return tiny.job(
            tmp_path / "cut", augmentation=SHIFT, learners=2, stop={"epochs": None, "iterations": stop},
            checkpoint={"every": "1 epoch"},
        )  # fmt: skip

    whole = tiny.run(tiny.job(tmp_path / "whole", augmentation=SHIFT, learners=2), 2).weights
    tiny.run(job(17), 2)
    assert tiny.same_bits(tiny.run(job(40), 2, resume="auto").weights, whole)


def net(image: Any) -> Any:
    return mpibow.dense(mpibow.flatten(image), 3)


def test_fit_and_predict_with_a_crop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    test, answers = tiny.images(31, seed=1)
    settings: dict[str, Any] = {"batch_size": 3, "stop": {"epochs": 4}, "update": {"lr": 0.02}}
    found = mpibow.fit(net, tiny.images(), (test, answers), augment={"crop": 5, "flip": True}, **settings)
    assert found.weights["dense1.weight"].shape == (3, 25)
    assert found.summary.accuracy == (found.predict(test).argmax(axis=1) == answers).mean()
    middle = (test[:, :, :5, :5].reshape(31, 25) - tiny.TRAIN.mean[0]) / tiny.TRAIN.std[0]
    expected = middle @ found.weights["dense1.weight"].T + found.weights["dense1.bias"]
    np.testing.assert_allclose(found.predict(test), expected, rtol=1e-4, atol=1e-4)


def test_from_a_file_and_evaluated_from_its_checkpoint(tmp_path: Path) -> None:
    augment = {"pad": 1, "crop": 5, "flip": True, "mixup": 0.4}
    data = {"train": "data/train", "test": "data/test", "augment": augment}
    loss, evaluate = {"smoothing": 0.1}, {"every": 1, "top_k": 2}
    write_run(tmp_path, data=data, stop={"epochs": 2}, loss=loss, evaluate=evaluate)
    done = run([sys.executable, "-m", "mpibow.train", "run.yaml"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = run([sys.executable, "-m", "mpibow.evaluate", "runs/run", "data/test", "--json"], cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    summary, result = json.loads((tmp_path / "runs/run/summary.json").read_text()), json.loads(found.stdout)
    assert result["loss"] == pytest.approx(summary["test_loss"], rel=1e-6)
    assert result["top_k_accuracy"] == summary["top_k_accuracy"] >= result["accuracy"]
    assert summary["top_k"] == 2
    assert f", top-2 {summary['top_k_accuracy']:.2%}\n" in done.stderr
    assert tiny.events(tmp_path / "runs/run", "evaluate")[-1]["top_k_accuracy"] == summary["top_k_accuracy"]
    command = [sys.executable, "-m", "mpibow.evaluate", "runs/run", "data/test", "--top-k"]
    assert "%, top-k 100.0000%, loss " in run([*command, "3"], cwd=tmp_path).stdout
    refused = run([*command, "4"], cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: --top-k: must be at most the 3 classes of runs/run/checkpoints/iteration-")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            Augmentation(mixup=0.2),
            "data.augment.mixup: mixes samples of one batch, so batch_size must be at least 2, got 1",
        ),
        (
            Augmentation(crop=7),
            "data.augment.crop: must be at most 6 as bars has images (1, 6, 6), got 7",
        ),
        (
            Augmentation(pad=6),
            "data.augment.pad: must be below 6, the smaller extent of the window that is cropped, got 6",
        ),
        (
            Augmentation(pad=2, crop=2),
            "data.augment.pad: must be below 2, the smaller extent of the window that is cropped, got 2",
        ),
    ],
)
def test_what_does_not_fit_the_images(tmp_path: Path, settings: Augmentation, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny.job(tmp_path, augmentation=settings, batch_size=1)
    assert str(caught.value) == message


def test_rows_are_no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images, labels = tiny.images()
    with tiny.unchanged(tmp_path), pytest.raises(ConfigError) as caught:
        mpibow.fit(net, (images.reshape(-1, 36), labels), augment={"flip": True})
    assert str(caught.value) == "data.augment: needs images (channels, height, width), train has (36,)"
    with tiny.unchanged(tmp_path), pytest.raises(ConfigError) as caught:
        mpibow.fit(net, (images, labels), augment={"mirror": True})
    assert str(caught.value) == "data.augment.mirror: is not a setting"
