"""Data on its way to a GPU: whatever fills the slots, the runs are the same; DALI decodes on the device."""

from pathlib import Path

import numpy as np
import pytest

from mpibow.config import load_mapping
from mpibow.data import write_records
from mpibow.data.dali import available
from mpibow.job import open_job
from mpibow.run.results import Trained
from tests.data.photos import bars, records
from tests.gpu import opened
from tests.run import tiny

pytestmark = opened.needs_gpu(pytest.mark.timeout(250))
RAW = ("host", "resident")


def trained(folder: Path, name: str, data: dict, resume: Path | None = None, **settings) -> Trained:
    defaults = {
        "name": "run",
        "out": str(folder / name),
        "model": {"name": "mlp", "hidden": [16]},
        "data": {"train": str(folder / "train"), "test": str(folder / "test"), **data},
        "batch_size": 4,
        "learners": 3,
        "precision": "float32",
        "update": {"lr": 0.02, "momentum": 0.9},
        "stop": {"epochs": None, "iterations": 40},
        "checkpoint": {"every": None},
        "log": {"every": 1},
    }
    return tiny.run(open_job(load_mapping(opened.on_gpu(**{**defaults, **settings}))), resume=resume)


@pytest.fixture
def raw(tmp_path) -> Path:
    for name, count in (("train", tiny.COUNT), ("test", 20)):
        images, labels = tiny.images(count, seed=len(name))
        write_records(tmp_path / name, zip(images, labels.tolist(), strict=True), classes=tiny.CLASSES)
    return tmp_path


@pytest.fixture
def photographs(tmp_path) -> Path:
    for name, count in (("train", 60), ("test", 15)):
        records(tmp_path / name, bars(count))
    return tmp_path


@pytest.mark.parametrize("augment", [{}, {"pad": 1, "flip": True}, {"cutout": 3, "flip": True}], ids=str)
def test_raw_images_by_any_way(raw: Path, augment):
    ways = (*RAW, "dali") if not available() else RAW
    found = {way: trained(raw, way, {"pipeline": way, "augment": augment}) for way in ways}
    again = trained(raw, "again", {"pipeline": "resident", "augment": augment})
    for way in ways:
        assert tiny.same_bits(found[way].weights, again.weights), way
    assert again.summary.accuracy > 0.5  # chance is 0.33


def test_a_way_that_is_resumed(raw: Path):
    every = {"every": "15 iterations", "keep": 9}
    whole = trained(raw, "whole", {"pipeline": "resident"}, checkpoint=every)
    checkpoint = raw / "whole/run/checkpoints/iteration-0000000015"
    resumed = trained(raw, "host", {"pipeline": "host"}, checkpoint)
    assert tiny.same_bits(resumed.weights, whole.weights)


@pytest.mark.dali
def test_dali_decodes_on_the_device(photographs: Path):
    """The same bits another time; about what the host decodes: nvJPEG rounds otherwise."""
    data = {"augment": {"area": [0.5, 1.0], "flip": True}, "image": {"size": 24}}
    host = trained(photographs, "host", {**data, "pipeline": "host"})
    first, again = (trained(photographs, name, {**data, "pipeline": "dali"}) for name in ("first", "again"))
    assert tiny.same_bits(first.weights, again.weights)
    assert tiny.distance(first.weights, host.weights) < 0.2
    losses = [
        [line["loss"] for line in tiny.events(photographs / name / "run", "train")[1:6]] for name in ("first", "host")
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.1)
