"""Augmentation and normalisation in a run: the same bits however it goes on its way; and what is refused."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import mpibow
from mpibow.comm import Single
from mpibow.config import load
from mpibow.data import Array, Image, open_records, write_records
from mpibow.data.decoded import Decoded
from mpibow.evaluate import evaluate
from mpibow.job import open_job
from mpibow.job.normalise import Scaling, scaling_of
from mpibow.models.augmentation import Augmentation, ColourJitter
from mpibow.run.checkpoint import read_arrays, read_header
from mpibow.train import train
from tests.data.sets import flip
from tests.launching import in_turn, run, well
from tests.refusals import refuses
from tests.run import tiny
from tests.run.processes import write_run

SHIFT = Augmentation(pad=1, flip=True)
ALL = Augmentation(pad=1, crop=5, flip=True, cutout=2, jitter=ColourJitter(0.4, 0.4))


def kinds(work: tiny.Job, training: bool) -> list[str]:
    return [node.op.kind for node in work.build(3, training).nodes]


def test_it_comes_first_and_in_training_only(tmp_path):
    work = tiny.job(tmp_path, augmentation=SHIFT)
    plain = kinds(tiny.job(tmp_path), False)
    assert kinds(work, True) == ["augment", *plain]
    assert kinds(work, False) == plain
    assert "augment1[3, 1, 6, 6]" in str(work.training_plan())
    assert "augment" not in str(work.evaluation_plan())
    assert kinds(tiny.job(tmp_path, augmentation=Augmentation()), True) == plain


def test_the_order_of_all_of_it(tmp_path):
    work = tiny.job(tmp_path, augmentation=ALL)
    assert kinds(work, True)[:4] == ["augment", "jitter", "normalise", "cutout"]
    assert kinds(work, False)[:3] == ["centre_crop", "normalise", "flatten"]
    pixel = tiny.job(tmp_path, augmentation=ALL, normalise="pixel")
    assert kinds(pixel, True)[:4] == ["jitter", "normalise", "augment", "cutout"]
    assert kinds(pixel, False)[:3] == ["normalise", "centre_crop", "flatten"]
    for off in (Augmentation(jitter=None), Augmentation(jitter=ColourJitter())):
        assert kinds(tiny.job(tmp_path, augmentation=off), True)[0] == "normalise"


def test_a_crop_is_the_centre_in_evaluation(tmp_path):
    work = tiny.job(tmp_path, augmentation=Augmentation(crop=4))
    assert kinds(work, True)[0] == "augment"
    assert kinds(work, False)[0] == "centre_crop"
    for training in (True, False):
        assert work.build(3, training).tensors["normalise1"].shape == (3, 1, 4, 4)


def net(image):
    return mpibow.dense(mpibow.flatten(image), 3)


def test_fit_and_predict_with_a_crop(here: Path):
    test, answers = tiny.images(31, seed=1)
    settings = {"batch_size": 3, "stop": {"epochs": 4}, "update": {"lr": 0.02}}
    found = mpibow.fit(net, tiny.images(), (test, answers), augment={"crop": 5, "flip": True}, **settings)
    assert found.weights["dense1.weight"].shape == (3, 25)
    assert found.summary.accuracy == (found.predict(test).argmax(axis=1) == answers).mean()
    middle = (test[:, :, :5, :5].reshape(31, 25) - tiny.TRAIN.mean[0]) / tiny.TRAIN.std[0]
    expected = middle @ found.weights["dense1.weight"].T + found.weights["dense1.bias"]
    np.testing.assert_allclose(found.predict(test), expected, rtol=1e-4, atol=1e-4)


def scaled(normalise: str, images: Array) -> Array:
    """By the definitions."""
    if normalise == "half":
        return images / 127.5 - 1
    if normalise == "none":
        return images.astype(np.float64)
    mean = tiny.images()[0].mean(axis=0) if normalise == "pixel" else tiny.TRAIN.mean[0]
    return (images - mean) / tiny.TRAIN.std[0]


@pytest.mark.parametrize("normalise", ["channel", "pixel", "half", "none"])
def test_a_checkpoint_says_what_a_net_sees(here: Path, normalise):
    """Evaluated where the training data are gone."""
    data = {"train": "data/train", "test": "data/test", "normalise": normalise, "augment": {"cutout": 2, "pad": 1}}
    write_run(here, data=data, stop={"epochs": 2}, evaluate={"every": 1}, update={"lr": 1e-4})
    summary = train(open_job(load("run.yaml")), Single()).summary
    shutil.rmtree("data/train")
    found = evaluate(Path("runs/run"), "data/test", Single())
    assert found.loss == pytest.approx(summary.test_loss, rel=1e-6)
    path = Path("runs/run/checkpoints/iteration-0000000019")
    header = read_header(path)
    assert ("input.safetensors" in header["files"]) == (normalise == "pixel")
    if normalise == "pixel":
        stored = read_arrays(path, "input")["mean"]
        np.testing.assert_array_equal(stored, tiny.images()[0].mean(axis=0).ravel())
        assert header["input"]["mean"] == "mean"
    w = {name: array.astype(np.float64) for name, array in read_arrays(path, "centre").items()}
    images, labels = tiny.images(20, seed=1)
    hidden = np.maximum(scaled(normalise, images).reshape(20, 36) @ w["dense1.weight"].T + w["dense1.bias"], 0)
    logits = hidden @ w["dense2.weight"].T + w["dense2.bias"]
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(20), labels]
    assert found.loss == pytest.approx(losses.mean(), rel=1e-4)


def test_one_rank_reads_the_mean_image_for_all(here: Path):
    data = {"train": "data/train", "test": "data/test", "normalise": "pixel"}
    write_run(here, data=data)
    config = load("run.yaml")
    first = open_job(config)
    flip(next(Path("data/train").glob("*.mpr")), 70)  # a second reading would fail
    assert open_job(config, first.scaling).scaling == first.scaling


def test_from_a_file_and_evaluated_from_its_checkpoint(tmp_path):
    augment = {"pad": 1, "crop": 5, "flip": True, "cutout": 2, "jitter": {"brightness": 0.1}, "mixup": 0.4}
    data = {"train": "data/train", "test": "data/test", "augment": augment, "normalise": "pixel"}
    loss, evaluate = {"label_smoothing": 0.1}, {"every": 1, "top_k": 2}
    write_run(tmp_path, data=data, stop={"epochs": 2}, loss=loss, evaluate=evaluate)
    done = well(run([sys.executable, "-m", "mpibow.train", "run.yaml"], cwd=tmp_path))
    evaluations = (["--json"], ["--top-k", "3"], ["--top-k", "4"])
    found, three, refused = in_turn(
        "mpibow.evaluate", *((tmp_path, ["runs/run", "data/test", *options]) for options in evaluations)
    )
    assert found.returncode == 0, found.stderr
    summary, result = json.loads((tmp_path / "runs/run/summary.json").read_text()), json.loads(found.stdout)
    assert result["loss"] == pytest.approx(summary["test_loss"], rel=1e-6)
    assert result["top_k_accuracy"] == summary["top_k_accuracy"] >= result["accuracy"]
    assert summary["top_k"] == 2
    assert f", top-2 {summary['top_k_accuracy']:.2%}\n" in done.stderr
    assert tiny.events(tmp_path / "runs/run", "evaluate")[-1]["top_k_accuracy"] == summary["top_k_accuracy"]
    assert "%, top-k 100.0000%, loss " in three.stdout
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
            Augmentation(cutout=7),
            "data.augment.cutout: must be at most 6, the smaller extent of the images that are trained on, got 7",
        ),
        (
            Augmentation(cutout=5, crop=4),
            "data.augment.cutout: must be at most 4, the smaller extent of the images that are trained on, got 5",
        ),
        (
            Augmentation(jitter=ColourJitter(saturation=0.4)),
            "data.augment.jitter.saturation: needs images of 3 channels, bars has (1, 6, 6); leave it out",
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
def test_what_does_not_fit_the_images(tmp_path, settings: Augmentation, message):
    with refuses(message):
        tiny.job(tmp_path, augmentation=settings, batch_size=1)


def test_rows_are_no_images(here: Path):
    images, labels = tiny.images()
    for augment in ({"flip": True}, {"cutout": 1}, {"jitter": {"contrast": 0.1}}):
        with tiny.unchanged(here), refuses("data.augment: needs images (channels, height, width), train has (36,)"):
            mpibow.fit(net, (images.reshape(-1, 36), labels), augment=augment)
    with tiny.unchanged(here), refuses("data.augment.mirror: is not a setting"):
        mpibow.fit(net, (images, labels), augment={"mirror": True})


def test_normalisations_that_there_are_not(here: Path):
    images, labels = tiny.images()
    for given, shown in ((True, "true"), ("batch", "'batch'")):
        with (
            tiny.unchanged(here),
            refuses(f"data.normalise: must be one of channel, pixel, half, none, got {shown}"),
        ):
            mpibow.fit(net, (images, labels), normalise=given)  # type: ignore[arg-type]
    with (
        tiny.unchanged(here),
        refuses("data.normalise: half needs uint8 images, train has float32 ones; write channel or none"),
    ):
        mpibow.fit(net, (images / 255, labels), normalise="half")


def test_a_mean_image_is_of_raw_images(tmp_path):
    write_records(tmp_path / "photos", [(b"\xff\xd8", 0)], classes=2, encoding="jpeg", moments=([1.0] * 3, [1.0] * 3))
    photos = Decoded(open_records(tmp_path / "photos"), Image())
    with refuses("data.normalise: pixel needs raw images, photos has jpeg ones; write channel"):
        scaling_of("pixel", photos, print)
    assert scaling_of("half", photos, print) == Scaling((127.5,) * 3, (127.5,) * 3)
