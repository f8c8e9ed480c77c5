"""Nets that are trained come back in another process: from runs, checkpoints and files, without data, as they were."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import mpibow as mb
from mpibow.errors import CheckpointError, ConfigError
from mpibow.run.saving import newest_first
from mpibow.run.stored import read_stored
from mpibow.run.stored_net import config_of
from tests.run import tiny

SETTINGS = {"batch_size": 3, "learners": 2, "update": {"lr": 0.05}, "stop": {"epochs": 2}}
BESIDE = """
import sys, numpy as np, mpibow as mb
np.save(sys.argv[3], mb.load(sys.argv[1]).predict(np.load(sys.argv[2])))
"""
doubled = mb.operator("doubled", lambda x: x + x, lambda x, y, dy: dy + dy)


def net(image: mb.Tensor) -> mb.Tensor:
    x = mb.relu(mb.batch_norm(mb.conv2d(image, 4, 3, padding=1)))
    return mb.dense(mb.dropout(mb.flatten(x), 0.2), 3)


def with_own(image: mb.Tensor) -> mb.Tensor:
    return mb.dense(doubled(mb.flatten(image) * 1.0), 3)


def with_the_batch_size(image: mb.Tensor) -> mb.Tensor:
    return mb.dense(mb.flatten(image), 3) * float(image.shape[0] + 1)


@pytest.mark.parametrize("normalise", ["channel", "pixel"])
def test_a_run_a_checkpoint_and_a_file_predict_as_the_net_that_was_trained(here: Path, normalise):
    images, labels = tiny.images(60)
    found = mb.fit(net, (images, labels), (images, labels), normalise=normalise, **SETTINGS)
    expected = found.predict(images)
    found.save("net.safetensors")
    run = Path(found.summary.run)
    assert mb.load(run / "checkpoints" / "best").predict(images[:2]).shape == (2, 3)
    for path in (run, newest_first(run / "checkpoints")[0], "net.safetensors"):
        again = mb.load(path)
        np.testing.assert_array_equal(again.predict(images), expected)
        assert again.summary.accuracy == found.summary.accuracy
        assert again.weights.keys() == found.weights.keys()
    assert mb.load(run).history == found.history
    assert [event["event"] for event in found.history][-1] == "end"
    with pytest.raises(ConfigError, match="history: is in the run directory"):
        _ = mb.load("net.safetensors").history


def test_the_average_of_the_centre_comes_back_too(here: Path):
    images, labels = tiny.images(60)
    found = mb.fit(net, (images, labels), ema={"half_life": 60, "every": 3}, **SETTINGS)
    expected = found.predict(images, average=True)
    assert (expected != found.predict(images)).any()
    found.save("net.safetensors")
    for path in (Path(found.summary.run), "net.safetensors"):
        again = mb.load(path)
        assert tiny.same_bits(again.average, found.average)
        np.testing.assert_array_equal(again.predict(images, average=True), expected)
    without = mb.fit(net, (images, labels), **SETTINGS)
    assert without.average is None
    with pytest.raises(ConfigError, match=r"^average: the run kept no average of the centre; train with ema="):
        without.predict(images, average=True)


def test_another_process_without_the_data_or_the_program(here: Path):
    images, labels = tiny.images(30)
    found = mb.fit(net, (images, labels), **SETTINGS)
    found.save(here / "net.safetensors")
    shutil.rmtree(found.summary.run)
    np.save("images.npy", images)
    command = [sys.executable, "-c", BESIDE, "net.safetensors", "images.npy", "logits.npy"]
    subprocess.run(command, check=True, cwd=here)
    np.testing.assert_array_equal(np.load("logits.npy"), found.predict(images))


def test_an_operator_of_the_program_is_passed_or_refused_by_name(here: Path):
    images, labels = tiny.images(30)
    found = mb.fit(with_own, (images, labels), **SETTINGS)
    run = found.summary.run
    np.testing.assert_array_equal(mb.load(run, operators=[doubled]).predict(images), found.predict(images))
    with pytest.raises(CheckpointError, match=r"iteration-\d+: .*needs the operator doubled"):
        mb.load(run)


def test_a_net_that_depends_on_the_batch_size_is_trained_and_the_log_says_that_it_cannot_be_loaded(here: Path):
    found = mb.fit(with_the_batch_size, tiny.images(30), **SETTINGS)
    run = Path(found.summary.run)
    assert "checkpoints: mpibow.load can't read them: graph.nodes[3].settings.scale" in (run / "log.txt").read_text()
    with pytest.raises(CheckpointError, match="has no graph"):
        mb.load(run)


def test_a_net_that_was_loaded_and_saved_keeps_its_settings(here: Path):
    found = mb.fit(net, tiny.images(60), **SETTINGS, loss={"ignore_index": 2}, metrics=["f1"], seed=7)
    mb.load(found.summary.run).save("again.safetensors")
    for path in (found.summary.run, "again.safetensors"):
        config = config_of(read_stored(path))
        assert (config.seed, config.loss.ignore_index, config.metrics) == (7, 2, ("f1",))


def test_a_run_that_has_not_ended_has_no_summary(here: Path):
    run = Path(mb.fit(net, tiny.images(30), **SETTINGS).summary.run)
    (run / "summary.json").unlink()
    with pytest.raises(ConfigError, match="summary: the run has not ended"):
        _ = mb.load(run).summary
    assert mb.load(run).history


def test_what_is_no_net_is_refused_by_name(here: Path):
    images = tiny.images(30)
    found = mb.fit(net, images, **SETTINGS)
    found.save("net.safetensors")
    with pytest.raises(CheckpointError, match="nowhere: does not exist"):
        mb.load("nowhere")
    (here / "text").write_text("x")
    with pytest.raises(CheckpointError, match="text: cannot be read"):
        mb.load("text")
    arrays = load_file("net.safetensors")
    save_file(arrays, "bare.safetensors")
    with pytest.raises(CheckpointError, match=r"was not written by Fitted.save"):
        mb.load("bare.safetensors")
    with pytest.raises(ConfigError, match=r"cannot be written: .*[Nn]o such file or directory"):
        found.save("nowhere/net.safetensors")


@pytest.mark.parametrize("damage", ["operator", "weights", "summary", "config", "graph", "json"])
def test_a_file_that_was_tampered_with(here: Path, damage):
    found = mb.fit(net, tiny.images(30), **SETTINGS)
    found.save("net.safetensors")
    from safetensors import safe_open

    with safe_open("net.safetensors", framework="numpy") as file:
        header = json.loads(file.metadata()["mpibow.net"])
    arrays = load_file("net.safetensors")
    if damage == "operator":
        header["graph"]["nodes"][1]["operator"] = "Eval"
    elif damage == "weights":
        arrays["weights/dense1.weight"] = arrays["weights/dense1.weight"][:2]
    elif damage == "json":
        header = [header]
    else:
        header[damage] = ["x"]
    save_file(arrays, "net.safetensors", {"mpibow.net": json.dumps(header)})
    with pytest.raises(CheckpointError, match=r"net.safetensors: "):
        mb.load("net.safetensors")
