"""The model of ratings from its records to its evaluation: what `launch/matrix-factorisation-ratings.yaml` does."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from mpibow.comm import Single
from mpibow.config import load_mapping
from mpibow.data import NamedArrays, open_records, write_records
from mpibow.data.ratings import FORM, ratings, record_of
from mpibow.errors import ConfigError, RecordError
from mpibow.evaluate import evaluate, main
from mpibow.fitting import fit
from mpibow.job import open_job
from mpibow.run.results import Trained
from mpibow.train import train
from tests.refusals import exits, refusal_of, refuses
from tests.run import tiny
from tests.run.test_ratings import FACTORS, ITEMS, USERS, error_of, net, ratings as arrays

SETTINGS = {
    "name": "run", "model": {"name": "matrix_factorisation", "users": USERS, "items": ITEMS, "factors": FACTORS},
    "data": {"train": "data/train", "test": "data/test"}, "batch_size": 4, "learners": 2, "update": {"lr": 0.05},
    "stop": {"epochs": 40}, "checkpoint": {"every": "40 epochs"},
}  # fmt: skip


def write(folder: Path, rows: Iterable[tuple[int, int, float]]) -> None:
    write_records(folder, (record_of(*row) for row in rows), classes=1)


@pytest.fixture
def data(here: Path) -> dict[str, NamedArrays]:
    """The ratings that `fit` is tested with, as records in the current folder's data/, and as they are read."""
    for name, part in zip(("train", "test"), arrays(), strict=True):
        write(Path("data", name), zip(*part.values(), strict=True))
    return {name: ratings(open_records(Path("data", name))) for name in ("train", "test")}


def run(settings: dict) -> Trained:
    return train(open_job(load_mapping(settings)), Single())


def test_records_are_the_arrays(data: dict[str, NamedArrays]):
    for name, part in zip(("train", "test"), arrays(), strict=True):
        for key, array in part.items():
            assert np.array_equal(data[name].arrays[key], array.astype(data[name].arrays[key].dtype)), (name, key)


def test_they_are_learnt_and_evaluated(data: dict[str, NamedArrays], capsys):
    found = run(SETTINGS)
    expected = error_of(found.weights, data["test"].arrays)
    assert found.summary.test_loss == pytest.approx(expected, rel=1e-5)
    assert found.summary.test_loss < 0.1 * data["test"].arrays["rating"].var()  # what guessing the mean would come to
    assert found.summary.accuracy is None
    for words, told in (([], "data/test"), (["--json"], "data/train")):
        capsys.readouterr()
        with exits(0):
            main(["runs/run", told, *words])
        said = capsys.readouterr().out
        if words:
            answer = json.loads(said)
            loss = pytest.approx(error_of(found.weights, data["train"].arrays), rel=1e-5)
            assert answer == {"accuracy": None, "loss": loss, "samples": data["train"].count}
        else:
            assert said.startswith(f"loss {found.summary.test_loss:.6f}, {data['test'].count:,} samples, ")


def test_a_net_of_ones_own_takes_their_folders(data: dict[str, NamedArrays]):
    settings = {name: value for name, value in SETTINGS.items() if name not in ("name", "model", "data")}
    found = fit(net, "data/train", Path("data/test"), **settings)
    assert found.summary.test_loss == pytest.approx(error_of(found.weights, data["test"].arrays), rel=1e-5)
    assert found.summary.test_loss < 0.1 * data["test"].arrays["rating"].var()


REFUSED = {
    "classes": (
        {"model": {**SETTINGS["model"], "classes": 5}}, ConfigError,
        "model.classes: matrix_factorisation has no classes, got 5; leave it out",
    ),
    "no tables": (
        {"model": {"name": "matrix_factorisation"}}, ConfigError,
        "model.users: is required, an integer\nmodel.items: is required, an integer",
    ),
    "a table that is too small": (
        {"model": {**SETTINGS["model"], "users": 20}}, ConfigError, "train.user: must lie in [0, 20), got 0 to 29",
    ),
    "DALI": (
        {"data": {**SETTINGS["data"], "pipeline": "dali"}}, ConfigError,
        "data.pipeline: dali reads records of images, train has none; set auto",
    ),
    "images": (
        {"data": {"train": "data/images"}}, RecordError,
        "data/images: has records raw uint8 (1, 6, 6), ratings are raw float32 (3, 1, 1); "
        "convert them with mpibow convert ratings",
    ),
    "half an item": (
        {"data": {"train": "data/half"}}, RecordError,
        "data/half/half-00000.mpr: record 1: item must be an integer in [0, 16777216), got 2.5",
    ),
    "a user below 0": (
        {"data": {"train": "data/below"}}, RecordError,
        "data/below/below-00000.mpr: record 2: user must be an integer in [0, 16777216), got -1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(data: dict[str, NamedArrays], case):
    write_records("data/images", zip(*tiny.images(), strict=True), classes=3)
    image = np.array([1, 2.5, 3], np.float32).reshape(FORM.shape)
    write_records("data/half", [record_of(0, 0, 1), (image, 0)], classes=1)
    write(Path("data/below"), [(0, 0, 1), (1, 1, 1), (-1, 0, 1)])
    change, error, message = REFUSED[case]
    with refuses(message, error):
        run({**SETTINGS, **change})
    assert not Path("runs").exists()


def test_a_damaged_rating_is_an_error(data: dict[str, NamedArrays]):
    path = Path("data/train/train-00000.mpr")
    found = bytearray(path.read_bytes())
    found[64 + 12 * 5] ^= 1  # behind the header, a record is 12 bytes
    path.write_bytes(found)
    assert refusal_of(run, {**SETTINGS, "data": {**SETTINGS["data"], "on_corrupt": "skip"}}).startswith(
        "data/train/train-00000.mpr: record 5: checksum is 0x"
    )


def test_an_evaluation_of_other_data(data: dict[str, NamedArrays], tmp_path):
    run({**SETTINGS, "stop": {"iterations": 2}, "checkpoint": {"every": "2 iterations"}})
    write(Path("data/more"), [(USERS, 0, 1)])
    folder = next((tmp_path / "runs/run/checkpoints").glob("iteration-*"))
    classes = f"--top-k, --predictions: need classes, {folder} was trained on arrays by name; leave them out"
    for where, options, message in (
        ("data/more", {}, f"more.user: must lie in [0, {USERS}), got {USERS} to {USERS}"),
        ("data/test", {"top_k": 2}, classes),
        ("data/test", {"predictions": tmp_path / "all.csv"}, classes),
    ):
        with refuses(message):
            evaluate(folder, where, Single(), **options)  # type: ignore[arg-type]
