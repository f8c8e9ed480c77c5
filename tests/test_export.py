"""Trained weights are written for other programs; test_export_torch.py reads the files for torch.load."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import mpibow as mb
from mpibow.convert.pickles import write_state_dict
from mpibow.errors import ConfigError
from mpibow.export import export, main, scaling_of
from mpibow.graph import Graph, initial_weights, plan_layout, plan_statistics
from mpibow.job.starting_weights import of_program, take
from mpibow.models import MODELS
from mpibow.models.torchvision import names_of
from mpibow.run.stored import Stored, read_stored
from tests.run import tiny

SETTINGS = {"batch_size": 3, "learners": 2, "update": {"lr": 0.05}, "stop": {"epochs": 1}}


def net(image: mb.Tensor) -> mb.Tensor:
    return mb.dense(mb.flatten(mb.relu(mb.batch_norm(mb.conv2d(image, 4, 3, padding=1)))), 3)


def untrained(name: str) -> Stored:
    """The net's first weights, and statistics that are none's."""
    graph = Graph()
    MODELS[name](graph.input("image", (1, 3, 32, 32)), 7)
    weights = {}
    for layout in (plan_layout(graph), plan_statistics(graph)):
        weights |= layout.unpacked(initial_weights(layout, 1, "float32"))
    return Stored(Path("net"), weights)


@pytest.fixture
def run(here: Path) -> mb.Fitted:
    return mb.fit(net, tiny.images(30), **SETTINGS)


def test_a_runs_weights_with_the_scaling_beside_them(run: mb.Fitted, capsys):
    assert main([run.summary.run, "--to", "safetensors", "--output", "net.out"]) == 0
    assert tiny.same_bits(load_file("net.out"), run.weights)
    about = json.loads(Path("net.out.json").read_text())
    image = about["input"]
    assert (about["names"], image["shape"], image["dtype"]) == ("mpibow", [1, 6, 6], "uint8")
    pixels = tiny.images(30)[0]
    assert image["mean"] == pytest.approx([pixels.mean()])
    assert image["std"] == pytest.approx([pixels.std()])
    assert image["to_tensor"]["mean"] == pytest.approx([pixels.mean() / 255])
    with safe_open("net.out", framework="numpy") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt"
    assert json.loads(metadata["input"]) == about
    assert "net.out: 8 arrays, 491 numbers, of " in capsys.readouterr().out


def test_a_checkpoint_a_file_and_a_bare_file(run: mb.Fitted, capsys):
    run.save("net.safetensors")
    save_file(run.weights, "bare.safetensors")
    for path in (f"{run.summary.run}/checkpoints/iteration-0000000005", "net.safetensors", "bare.safetensors"):
        assert main([path, "--to", "safetensors", "--output", f"{Path(path).name}.out"]) == 0
        assert tiny.same_bits(load_file(f"{Path(path).name}.out"), run.weights)
    assert capsys.readouterr().out.count("has no scaling of inputs") == 1
    again = mb.fit(net, tiny.images(30), weights="bare.safetensors", **SETTINGS)
    assert again.weights.keys() == run.weights.keys()


def test_a_mean_image_is_written_beside(here: Path):
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 255, (30, 1, 9, 8)).astype(np.uint8), np.arange(30) % 3
    run = mb.fit(net, (images, labels), normalise="pixel", ema={"half_life": 9, "every": 1}, **SETTINGS).summary.run
    assert main([run, "--to", "safetensors", "--average", "--output", "a.out"]) == 0
    assert json.loads(Path("a.out.json").read_text())["input"]["mean"] == "a.out.mean.npy"
    np.testing.assert_allclose(np.load("a.out.mean.npy"), images.mean(axis=0), rtol=1e-6)
    assert tiny.same_bits(load_file("a.out"), mb.load(run).average or {})


def test_the_scaling_of_an_input_of_another_name(here: Path):
    data, loss = tiny.images(30), mb.cross_entropy
    run = mb.fit(lambda x: net(mb.normalise(x, [1], [2])), data, loss=loss, **SETTINGS).summary.run
    found, _ = scaling_of(read_stored(run))
    assert (found["input"]["shape"], found["input"]["mean"]) == ([1, 6, 6], [1])


def test_what_cannot_be_written_is_refused(run: mb.Fitted, capsys):
    def refused(*arguments: str) -> str:
        assert main([*arguments, "--to", "torch"]) > 0
        return capsys.readouterr().err

    place = run.summary.run
    assert refused(place, "--output", "a", "--names", "torchvision").startswith(
        "error: --names: torchvision has no net of "
    )
    assert refused(place, "--output", "a", "--average").endswith("train with ema.half_life=SAMPLES\n")
    assert refused("nowhere", "--output", "a") == (
        "error: nowhere: does not exist; give a run directory, a checkpoint or a safetensors file\n"
    )
    assert "cannot be written: no such file" in refused(place, "--output", "no/a")
    Path("a.json").write_text("mine")
    assert refused(place, "--output", "a") == "error: a.json: exists already; choose another name\n"
    assert not Path("a").exists()
    with pytest.raises(
        ConfigError,
        match=r"^x: must be of float32, float64, float16, int64, int32, int16, int8, uint8, bool, got complex128$",
    ):
        write_state_dict(io.BytesIO(), {"x": np.zeros(2, complex)})


def test_shapes_of_a_net_that_torchvision_has_otherwise():
    small = untrained("vgg_a")
    with pytest.raises(ConfigError, match=r"vgg_a has classifier\.0\.weight of \(4096, 25088\), .* \(4096, 512\)"):
        export(small, "torchvision")


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_torchvisions_names_come_back_as_ours(name, tmp_path):
    """Export, and start from the file: every array has its bits, at its own place."""
    stored = untrained(name)
    generator = np.random.default_rng(0)
    weights = {key: generator.random(array.shape, np.float32) for key, array in stored.weights.items()}
    found = export(Stored(Path("net"), weights), "torchvision")
    assert found.about["net"] == name
    counted = [key for key in found.arrays if key.endswith("num_batches_tracked")]
    assert len(counted) == sum(key.endswith(".variance") for key in weights)
    names = names_of(weights)
    assert len(found.arrays) == len(names.theirs) + len(counted)
    save_file(dict(found.arrays), tmp_path / "theirs.safetensors")
    given = of_program(tmp_path / "theirs.safetensors")
    taken = take(given, read_stored(given.weights.file).weights, {key: array.shape for key, array in weights.items()})
    assert tiny.same_bits(dict(taken.arrays), weights)
    assert (taken.missing, taken.unexpected, taken.excluded) == ((), (), ())
