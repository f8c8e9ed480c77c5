"""`mpibow evaluate RUN PART` after `fit`: every part, however a program gave its data."""

from collections.abc import Callable
from pathlib import Path

import pytest

import mpibow as mb
from mpibow.comm import Single
from mpibow.data import open_records, write_records
from mpibow.errors import ConfigError
from mpibow.evaluate import evaluate
from tests.refusals import refuses
from tests.run import tiny

FOLDERS = {name: f"data/{name}" for name in ("train", "validation", "test")}
SETTINGS = {"batch_size": 3, "learners": 1, "stop": {"epochs": 2}, "name": "run", "device": "numpy"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, (name, folder) in enumerate(FOLDERS.items()):
        images, labels = tiny.images(60 if name == "train" else 20, seed)
        write_records(Path(folder), zip(images, labels.tolist(), strict=True), classes=tiny.CLASSES)


def losses(image, label):
    return mb.cross_entropy(mb.dense(mb.flatten(mb.cast(image)), tiny.CLASSES), label)


def outputs(image):
    return mb.dense(mb.flatten(image), tiny.CLASSES)


KINDS = {
    "a classifier": (tiny.plain, None), "losses": (losses, None), "outputs": (outputs, mb.cross_entropy),
}  # fmt: skip


@pytest.mark.parametrize("give", [str, Path, open_records])
@pytest.mark.parametrize(("net", "loss"), KINDS.values(), ids=KINDS.keys())
def test_folders_are_found_again(give: Callable, net, loss):
    parts = {name: give(folder) for name, folder in FOLDERS.items()}
    summary = mb.fit(net, **parts, loss=loss, **SETTINGS).summary
    for name, expected in (("test", summary.test_loss), ("validation", summary.validation_loss)):
        found = evaluate(Path(summary.run), name, Single())
        assert (found.loss, found.count) == (expected, 20)
    assert evaluate(Path(summary.run), "train", Single()).count == 60


@pytest.mark.parametrize(("net", "loss"), KINDS.values(), ids=KINDS.keys())
def test_a_fraction_is_split_off_again(net, loss):
    summary = mb.fit(net, "data/train", validation=0.25, loss=loss, seed=3, **SETTINGS).summary
    found = evaluate(Path(summary.run), "validation", Single())
    assert (found.loss, found.count) == (summary.validation_loss, 15)
    assert evaluate(Path(summary.run), "train", Single()).count == 45
    with pytest.raises(ConfigError, match=r"^test: \S+ has no test data; give a folder of records, ./test if"):
        evaluate(Path(summary.run), "test", Single())


def test_a_class_that_training_lacks_is_refused():
    for name in ("abc", "abd"):
        write_records(Path(name), zip(*tiny.images(20), strict=True), classes=3, class_names=tuple(name))
    run = mb.fit(tiny.plain, "abc", **SETTINGS).summary.run
    said = "abd has class_names.d 2, the data that were trained on have null; convert both together"
    with refuses(f"data.test: {said}"):
        mb.fit(tiny.plain, "abc", "abd", **SETTINGS)
    with refuses(f"abd: {said}"):
        evaluate(Path(run), "abd", Single())


@pytest.mark.parametrize("name", ["train", "validation", "test"])
@pytest.mark.parametrize("validation", [0.25, tiny.images(20, seed=2)])
def test_a_programs_own_arrays_are_asked_for(name, validation):
    fitted = mb.fit(tiny.plain, tiny.images(), tiny.images(20, seed=1), validation=validation, **SETTINGS)
    with pytest.raises(ConfigError, match=f"^{name}: its program gave no folder of {name} data; give a folder of reco"):
        evaluate(Path(fitted.summary.run), name, Single())
    assert evaluate(Path(fitted.summary.run), "data/test", Single()).count == 20
