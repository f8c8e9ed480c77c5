"""Whatever is done to a stored net: it is loaded, or refused with the name of what is wrong, and nothing of it runs."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import mpibow as mb
from mpibow.errors import CheckpointError
from mpibow.fitted import of_stored
from mpibow.run.saving import newest_first
from mpibow.run.stored import Stored, read_stored
from tests.run import tiny

SETTINGS = {"batch_size": 3, "learners": 1, "stop": {"epochs": None, "iterations": 2}}
Change = Callable[[dict], object]


def net(image: mb.Tensor) -> mb.Tensor:
    x = mb.max_pool2d(mb.relu(mb.batch_norm(mb.conv2d(image, 4, 3, padding=1))), 2)
    x = mb.transpose(mb.reshape(x, (x.shape[0], 4, -1)), 1, 2)
    return mb.dense(mb.dropout(mb.mean(x, (1,)), 0.2), 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("tampered")
    return Path(mb.fit(net, tiny.images(12), out=str(out), **SETTINGS).summary.run)


@pytest.fixture
def tampered(run: Path, tmp_path) -> Callable[[Change], Path]:
    """A copy of the run whose checkpoint was changed, and its checksum with it."""

    def made(change: Change) -> Path:
        path = tmp_path / "run"
        shutil.copytree(run, path)

        def changed(header: dict) -> dict:
            change(header)
            return header

        tiny.seal(newest_first(path / "checkpoints")[0], changed)
        return path

    return made


def node(n: int, **entries) -> Change:
    return lambda header: header["graph"]["nodes"][n].update(entries)


def setting(n: int, **entries) -> Change:
    return lambda header: header["graph"]["nodes"][n]["settings"].update(entries)


def head(header: dict) -> None:
    """For four classes."""
    (dense,) = (each for each in header["graph"]["nodes"] if each["operator"] == "Dense")
    dense["settings"]["units"] = 4


CHANGES = {
    "an unknown operator": (node(1, operator="Eval"), "graph.nodes[1].operator: 'Eval' is none of this version's"),
    "Python's own": (node(1, operator="os.system"), "graph.nodes[1].operator: 'os.system' is none of this version's"),
    "a program's operator": (
        node(1, operator="own swish"),
        "graph.nodes[1]: needs the operator swish of the program that trained it: pass operators=[swish]",
    ),
    "a newer version": (
        node(1, version=9), "graph.nodes[1].version: Conv2d is of version 9, this mpibow has version 1",
    ),
    "an input that nothing makes": (node(1, inputs=["x"]), "graph.nodes[1].inputs: names 'x', which no node before it"),
    "a cycle": (node(1, inputs=["dense1"]), "graph.nodes[1].inputs: names 'dense1', which no node before it makes"),
    "a setting of another type": (setting(1, channels="many"), "graph.nodes[1].settings.channels: must be an integer"),
    "a setting too many": (setting(1, code="print()"), "graph.nodes[1].settings.code: is not a setting"),
    "no stride": (setting(1, stride=[0, 0]), "conv1 (conv of normalise1 (1, 1, 6, 6)): kernel (3, 3) and stride"),
    "an array that is not there": (
        setting(0, mean={"array": "secrets"}), "graph: names the array 'secrets', which is not there",
    ),
    "other classes": (head, "holds the weights of another model"),
    "no outputs": (lambda header: header["graph"].update(outputs={"logits": "gone"}), "graph.outputs.logits: names"),
    "a list": (lambda header: header.update(graph=[1]), "graph: must be a mapping or null, got [1]"),
    "settings that are none": (lambda header: header.update(config="[1]"), "config: must be a mapping of settings"),
    "a device that is none": (lambda header: header.update(config="device: quantum"), "config: device: must be one of"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_checkpoint_that_was_changed_is_refused_by_name(name, tampered: Callable[[Change], Path]):
    change, message = CHANGES[name]
    path = tampered(change)
    with pytest.raises(CheckpointError, match=rf"checkpoints/iteration-\d+.*{re.escape(message)}"):
        mb.load(path)


@pytest.mark.parametrize("file", ["centre.safetensors", "checkpoint.json", "rank-0.safetensors"])
def test_a_file_that_is_gone_or_changed_is_named(file, run: Path, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    path = newest_first(tmp_path / "run/checkpoints")[0] / file
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{file}: is damaged"):
        mb.load(tmp_path / "run")
    path.unlink()
    with pytest.raises(CheckpointError, match=rf"{file}: cannot be read: no such file"):
        mb.load(tmp_path / "run")


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_summary_that_is_none(text, run: Path, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run/summary.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"summary.json: .*; remove it, the run's weights are whole"):
        mb.load(tmp_path / "run")
    (tmp_path / "run/summary.json").unlink()
    assert mb.load(tmp_path / "run").predict(tiny.images(2)[0]).shape == (2, 3)


class Trap:
    """What an unpickler runs."""

    def __reduce__(self):
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize(
    "name", ["net.pth", "net.safetensors", "run/checkpoints/iteration-0000000009/centre.safetensors"]
)
def test_a_pickle_is_never_run(name, here: Path):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(pickle.dumps(Trap()))
    np.save(Path(name).with_name("x.npy"), np.array([Trap()], object), allow_pickle=True)
    for path in (name, name.split("/")[0]):
        with pytest.raises(CheckpointError) as caught:
            mb.load(path)
        assert ("torch.save is a pickle: convert it" in str(caught.value)) == name.endswith("pth")
    assert not Path("sprung").exists()
    pickle.loads(Path(name).read_bytes())
    assert Path("sprung").exists()


def places(entry, path: tuple = ()) -> list[tuple]:
    """Every place of a JSON document below the top."""
    items = entry.items() if isinstance(entry, dict) else enumerate(entry) if isinstance(entry, list) else ()
    return [each for key, value in items for each in [(*path, key), *places(value, (*path, key))]]


VALUES = (
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from([1 << 40, -1.5, 0.0, float("inf"), "", "relu1"])
    | st.sampled_from(["float", "uint8", "object", [], [0], [1, 1], {}, {"batch": 2}, {"array": "x"}])
)  # fmt: skip


@pytest.fixture(scope="module")
def stored(run: Path) -> Stored:
    return read_stored(run)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_entry_of_the_graph_may_be_anything(stored: Stored, data: st.DataObject):
    """It is refused by a CheckpointError, or is still a net of these weights."""
    graph = copy.deepcopy(json.loads(json.dumps(stored.graph)))
    *before, last = data.draw(st.sampled_from(places(graph)))
    entry = graph
    for key in before:
        entry = entry[key]
    entry[last] = data.draw(VALUES)
    with suppress(CheckpointError):
        of_stored(replace(stored, graph=graph))
