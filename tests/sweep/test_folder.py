"""What a sweep keeps: whole files or none, found again, never taken for a run with other settings."""

import json

import pytest

from mpibow.config import Config, load_mapping, plain
from mpibow.errors import ConfigError, RecordError
from mpibow.sweep.folder import CellResult, SweepFolder
from tests.refusals import refuses


def config(**settings) -> Config:
    return load_mapping({"model": {"name": "mlp"}, "data": {"train": "data/train"}, "name": "a", **settings})


@pytest.fixture
def kept(tmp_path) -> SweepFolder:
    kept = SweepFolder(tmp_path / "new/sweep")
    kept.begin(1)
    return kept


def test_a_result_comes_back(kept: SweepFolder):
    result = CellResult({"update": {"lr": 0.1}}, plain(config()), {"accuracy": 0.5})
    kept.save("a", result)
    assert kept.results() == {"a": result}
    assert [path.name for path in (kept.folder / "cells").iterdir()] == ["a.json"]
    kept.check("a", config())
    assert (result.value("update.lr"), result.value("seed"), result.value("model.none.x")) == (0.01, 1, None)


@pytest.mark.parametrize("stage", ["ended", "begun"])
def test_other_settings_are_refused(kept: SweepFolder, stage):
    if stage == "ended":
        kept.save("a", CellResult({}, plain(config()), None))
    kept.prepare("a", config())
    kept.check("a", config(checkpoint={"every": None}, log={"every": 7}, name="b"))  # which change no number
    with pytest.raises(ConfigError, match="has another metrics than now"):  # which may decide when a run stops
        kept.check("a", config(metrics=["f1"]))
    kept.check("b", config(seed=2))
    with pytest.raises(ConfigError) as caught:
        kept.check("a", config(seed=2, stop={"epochs": 3}))
    cell, run = kept.folder / "cells/a.json", kept.folder / "runs/a"
    path, remedy = (cell, f"delete {cell} and {run}") if stage == "ended" else (run / "config.yaml", f"delete {run}")
    assert str(caught.value) == f"{path}: has another stop, seed than now; use another --output, or {remedy}"


def test_a_setting_that_is_new_had_its_default(kept: SweepFolder):
    older = plain(config())
    del older["prefetch"]
    kept.save("a", CellResult({}, older, None))
    kept.check("a", config())
    with pytest.raises(ConfigError, match="has another prefetch than now"):
        kept.check("a", config(prefetch=3))


def test_ranks_stay_the_same(kept: SweepFolder):
    kept.begin(1)
    with refuses(f"--ranks: the runs of {kept.folder} have 1, got 2; use another --output"):
        kept.begin(2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); "),
        ("[]", "is damaged: must be a mapping, got list; "),
        ('{"x": 1}', "is not a file of a cell; "),
    ],
)
def test_damaged_files(kept: SweepFolder, content, message):
    path = kept.cell("a")
    path.write_text(content)
    with refuses(f"{path}: {message}delete it to run the cell again", RecordError):
        kept.results()


def test_a_newer_file(kept: SweepFolder):
    kept.save("a", CellResult({}, {}, None, format=2))
    with pytest.raises(RecordError, match="must have format 1, got 2; use the mpibow that wrote it"):
        kept.results()


def test_a_summary_counts_where_the_run_reached_its_end(kept: SweepFolder):
    kept.prepare("a", config())
    path = kept.run("a") / "summary.json"
    assert kept.finished("a") is None
    path.write_text(json.dumps({"stopped": "SIGTERM"}))
    assert kept.finished("a") is None
    path.write_text(json.dumps({"stopped": "stop.epochs 2"}))
    assert kept.finished("a") == {"stopped": "stop.epochs 2"}


def test_a_lock_is_one_holder_s(kept: SweepFolder):
    with kept.locked("a") as mine:
        assert mine is not None
        with SweepFolder(kept.folder).locked("a") as other, SweepFolder(kept.folder).locked("b") as free:
            assert other is None
            assert free is not None
    with kept.locked("a") as again:
        assert again is not None
