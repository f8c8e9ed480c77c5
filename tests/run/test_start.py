"""Where a run begins, and with which state: as settings say, or a checkpoint, or what is left of that."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mpibow.data import Change, Timeline, fixed
from mpibow.graph import initial_weights
from mpibow.run.checkpoint import read_header
from mpibow.run.header import header_of
from mpibow.run.start import Source, Start, lasting, start_of
from mpibow.run.timelines import first_timeline
from tests.run import tiny

STOP, EVERY = {"epochs": None, "iterations": 12}, {"every": "12 iterations"}
SETTINGS = {"learners": 2, "net": tiny.normed, "stop": STOP, "checkpoint": EVERY}


def start_with(source: Source, **settings) -> Start:
    work = tiny.job(source.folder, **{**SETTINGS, **settings})
    return start_of(source, work, work.training_plan(), first_timeline(work.config, 1))


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Source, dict]:
    """Where a run goes on whose two learners have made twelve iterations, and its weights."""
    folder = tmp_path_factory.mktemp("source")
    weights = tiny.train(folder, **SETTINGS).weights
    path = folder / "run/checkpoints/iteration-0000000012"
    return Source(folder / "run", path, header_of(path, read_header(path))), weights


def test_a_new_run(tmp_path):
    new, plan = start_with(Source(tmp_path)), tiny.job(tmp_path, **SETTINGS).training_plan()
    assert (new.iteration, new.timeline, new.learners) == (0, fixed(3, (2,)), ((2,), ""))
    assert np.array_equal(new.centre, initial_weights(plan.layout, 1, "float64"))
    assert np.array_equal(new.statistics, initial_weights(plan.statistics, 1, "float64"))
    assert (new.exact, new.changed, new.kept, new.due) == (False, (), None, (False, False, False))


def test_a_checkpoint_is_continued(trained: tuple[Source, dict]):
    source, weights = trained
    assert source.header is not None
    found, plan = start_with(source), tiny.job(source.folder, **SETTINGS).training_plan()
    assert (found.iteration, found.timeline, found.learners) == (12, fixed(3, (2,)), ((2,), ""))
    assert tiny.same_bits(plan.unpacked(found.centre, found.statistics), weights)
    assert (found.exact, found.kept, found.due) == (True, source.header, source.header.due)


@pytest.mark.parametrize(("settings", "changed"), [
    ({"learners": 3}, ["learners were 2"]),
    ({"learners": "auto"}, ["learners were 2"]),
    ({"rule": {"name": "ssgd"}}, ["the rule was different"]),
    ({"learners": 1, "rule": {"name": "sma", "outer": {"gain": 2.0}}}, ["learners were 2", "the rule was different"]),
])  # fmt: skip
def test_of_another_run_the_centre_is_taken(trained: tuple[Source, dict], settings, changed):
    """And what the ranks owe each other: the evaluation of that centre."""
    source, _ = trained
    assert source.header is not None
    due = replace(source.header, due=(True, False, True))
    found, same = start_with(Source(source.folder, source.checkpoint, due), **settings), start_with(source)
    count = {"auto": 1}.get(settings.get("learners", 2), settings.get("learners", 2))
    assert (list(found.changed), found.exact, found.kept) == (changed, False, None)
    assert (found.iteration, found.learners, found.due) == (12, ((count,), ""), (True, False, True))
    assert found.timeline.position(12) == source.header.position == 72
    assert np.array_equal(found.centre, same.centre)


def test_another_batch_size_goes_on_alike(trained: tuple[Source, dict]):
    found = start_with(trained[0], batch_size=5)
    assert (found.exact, found.timeline) == (True, fixed(5, (2,), 12, 72))


@pytest.mark.parametrize(
    ("iteration", "learners"), [(0, ((1,), "streams")), (4, ((1,), "streams")), (5, ((2,), "fused"))]
)
def test_a_change_that_was_due_has_not_come_yet(iteration, learners):
    """A checkpoint made right before a change has the learners of before; who begins anew has those of after."""
    timeline = Timeline(3, (Change(0, 0, (1,), "streams"), Change(4, 12, (2,), "fused")))
    header = SimpleNamespace(counts=learners[0])
    state = iteration, timeline, np.zeros(0), np.zeros(0)
    assert Start(Source(Path(), Path(), header), *state).learners == learners
    now = timeline.change(iteration)
    assert Start(Source(Path(), Path(), header), *state, ("x",)).learners == (now.counts, now.execution)
    assert Start(Source(Path()), *state).learners == (now.counts, now.execution)


def test_every_checkpoint_says_what_lasts(trained: tuple[Source, dict]):
    source, _ = trained
    assert source.header is not None
    work = tiny.job(source.folder.parent, **SETTINGS)
    said = lasting(work, work.training_plan(), first_timeline(work.config, 1))
    of_the_data = {"train_samples", "validation_fraction", "sample_weight", "contents", "input"}
    assert set(said) == {"seed", "precision", "layout", "started", "rule_settings", "config", *of_the_data}
    assert json.loads(json.dumps({key: getattr(source.header, key) for key in said})) == json.loads(json.dumps(said))


@pytest.mark.parametrize(
    ("learners", "ranks", "counts"), [("auto", 3, (1, 1, 1)), (2, 3, (2, 2, 2)), ([1, 4], 2, (1, 4))]
)
def test_learners_that_a_new_run_begins_with(tmp_path, learners, ranks, counts):
    assert first_timeline(tiny.job(tmp_path, learners=learners).config, ranks) == fixed(3, counts)
