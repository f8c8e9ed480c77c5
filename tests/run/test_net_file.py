"""Nets by `model.name: FILE.py:FUNCTION`: trained, resumed, evaluated and loaded; training alone runs the file."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import mpibow as mb
from mpibow import evaluate as evaluation
from mpibow.comm import Single
from mpibow.config import load
from mpibow.errors import CommunicationError, ConfigError, MpibowError, ShapeError
from mpibow.evaluate import evaluate
from mpibow.job import open_job
from mpibow.run.results import Trained
from mpibow.train import train
from tests.launching import mpirun, needs_mpi, run as launch, well
from tests.refusals import exits, refusal_of, refuses
from tests.run import tiny
from tests.run.processes import write_run

OWN = """
import mpibow as mb
from neighbour import WIDTH

def net(image, classes, *, width: int = WIDTH, drop: float = 0.0):
    x = mb.relu(mb.dense(mb.flatten(image), width))
    return mb.dense(mb.dropout(x, drop) if drop else x, classes)

def losses(image, label, scale: float = 1.0):
    logits = mb.dense(mb.flatten(mb.cast(image)) * scale, 3)
    return mb.cross_entropy(logits, label)
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mynet.py").write_text(OWN)
    (tmp_path / "neighbour.py").write_text("WIDTH = 9\n")
    write_run(tmp_path, model={"name": "mynet.py:net"}, stop={"epochs": 2}, checkpoint={"every": "1 epoch"})
    return tmp_path


def run(*overrides: str, resume: str | None = None) -> Trained:
    return train(open_job(load("run.yaml", overrides)), Single(), resume=resume)


def refused(*overrides: str, kind: type[MpibowError] = ConfigError) -> str:
    return refusal_of(lambda: open_job(load("run.yaml", overrides)), error=kind)


def test_it_trains_as_the_same_net_in_a_program(here: Path):
    found = run("model.width=7")
    weights = {name: array.shape for name, array in found.weights.items()}
    assert weights["dense1.weight"] == (7, 36)
    assert weights["dense2.weight"] == (3, 7)

    def same(image: mb.Tensor) -> mb.Tensor:
        return mb.dense(mb.relu(mb.dense(mb.flatten(image), 7)), 3)

    settings = {
        key: value
        for key, value in yaml.safe_load(Path("run.yaml").read_text()).items()
        if key not in ("model", "data", "name")
    }
    again = mb.fit(same, "data/train", "data/test", **settings)
    assert tiny.same_bits(again.weights, found.weights)


def test_a_scaling_that_nothing_would_apply(here: Path):
    found = refused("model.name=mynet.py:losses", "data.normalise=half")
    assert found == (
        "data.normalise: has no effect on train, which has image (1, 6, 6) uint8, label () int32; leave it out"
    )


def test_the_run_keeps_the_file_and_its_checksum(here: Path):
    run("name=auto")
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("net-data-")
    assert (folder / "mynet.py").read_text() == OWN
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    assert settings["model"]["name"] == "mynet.py:net"
    assert settings["model"]["sha256"] == hashlib.sha256(OWN.encode()).hexdigest()


def test_it_is_evaluated_and_loaded_without_its_file(here: Path):
    found = run()
    images, labels = tiny.images(20, seed=1)
    Path("mynet.py").unlink()
    for path in (Path("runs/run"), Path("runs/run/checkpoints/best")):
        seen = evaluate(path, "data/test", Single(), top_k=2)
        assert seen.count == 20
        assert seen.top_k_accuracy is not None
    assert evaluate(Path("runs/run"), "test", Single()).accuracy == found.summary.accuracy
    net = mb.load("runs/run")
    assert (net.predict(images).argmax(axis=1) == labels).mean() == found.summary.accuracy
    net.save("net.safetensors")
    assert evaluate(Path("net.safetensors"), "data/test", Single()).accuracy == found.summary.accuracy
    assert evaluate(Path("net.safetensors"), "test", Single()).accuracy == found.summary.accuracy


def test_nothing_of_the_run_is_executed(here: Path):
    run()
    for path in (Path("mynet.py"), Path("runs/run/mynet.py")):
        path.write_text("open('executed', 'w')\n" + OWN)
    evaluate(Path("runs/run"), "data/test", Single())
    mb.load("runs/run")
    assert not Path("executed").exists()


def test_it_is_resumed_and_a_changed_file_is_seen(here: Path):
    whole = run("name=whole", "stop.epochs=3")
    run("stop.epochs=1")
    Path("mynet.py").write_text(OWN + "# a remark\n")
    resumed = run("stop.epochs=3", resume="runs/run")
    assert tiny.same_bits(resumed.weights, whole.weights)
    assert "settings that differ from before: model" in Path("runs/run/log.txt").read_text()
    assert Path("runs/run/mynet.py").read_text().endswith("# a remark\n")


def test_settings_that_a_run_kept_take_the_same_file_only(here: Path):
    run()
    then, now = (hashlib.sha256(text.encode()).hexdigest() for text in (OWN, OWN + "#"))
    Path("mynet.py").write_text(OWN + "#")
    with refuses(
        f"model.sha256: mynet.py has changed: it is {now[:12]}..., the settings have {then[:12]}...; type "
        "model.sha256=null to train with the file as it is now"
    ):
        open_job(load("runs/run/config.yaml"))
    open_job(load("runs/run/config.yaml", ["model.sha256=null"]))
    open_job(load("runs/run/config.yaml", ["model.name=runs/run/mynet.py:net"]))


def test_a_net_may_give_its_own_losses(here: Path):
    run("model.name=mynet.py:losses", "model.scale=0.01", "stop.epochs=5")
    seen = evaluate(Path("runs/run"), "data/test", Single())
    assert seen.accuracy is None
    assert seen.loss < np.log(3)
    images, labels = tiny.images(20, seed=1)
    np.savez("test.npz", image=images, label=labels)
    assert evaluate(Path("runs/run"), "test.npz", Single()).loss == seen.loss
    np.savez("test.npz", image=images)
    with refuses("test.npz: has no array label, the net takes image, label"):
        evaluate(Path("runs/run"), "test.npz", Single())


def test_the_function_is_named(here: Path):
    assert refused("model.name=mynet.py") == (
        "model.name: must name a function of mynet.py too, as mynet.py:net, got 'mynet.py'"
    )
    assert refused("model.name=mynet.py:nett") == "model.name: mynet.py has no function 'nett'; did you mean 'net'?"
    assert refused("model.name=mynet.py:x") == "model.name: mynet.py has no function 'x'; it has net, losses"
    assert refused("model.name=neighbour.py:x") == "model.name: neighbour.py has no function 'x'; it has none"
    assert refused("model.name=nowhere.py:net") == "model.name: nowhere.py: cannot be read: no such file or directory"
    assert refused("model.widht=3") == "model.widht: is not a setting of net; did you mean 'width'?"
    assert refused("model.width=wide") == "model.width: must be an integer, got 'wide'"


@pytest.mark.parametrize(("text", "kind", "message"), [
    ("def net(image, classes:\n", ConfigError, "model.name: mynet.py:1: '(' was never closed"),
    ("import nowhere\n", ConfigError, "model.name: mynet.py:1: ModuleNotFoundError: No module named 'nowhere'"),
    ("\nraise SystemExit(3)\n", ConfigError, "model.name: mynet.py:2: SystemExit: 3"),
    ("def part(x):\n    return x.wide\ndef net(image, classes):\n    return part(image)\n", ConfigError,
     "mynet.py:2: AttributeError: 'Tensor' object has no attribute 'wide'"),
    ("import mpibow as mb\ndef net(image, classes):\n    return mb.conv2d(mb.flatten(image), 2, 3)\n", ShapeError,
     None),
    ("def net(image, classes):\n    pass\n", ShapeError, "mynet.py:net: must return a tensor, got NoneType"),
    ("def net():\n    pass\n", ConfigError,
     "model.name: mynet.py:net: must take an image, as def net(image, classes): ..."),
    ("def net(image, label, other):\n    pass\n", ConfigError,
     "model.name: mynet.py:net takes other, the data have image, label"),
])  # fmt: skip
def test_a_fault_in_the_file_is_shown_with_its_line(here: Path, text, kind, message):
    Path("mynet.py").write_text(text)
    found = refused(kind=kind)
    assert found == message if message else found.startswith("mynet.py:3: conv1 (conv of flatten1")


@pytest.mark.slow
def test_every_command_takes_it(here: Path):
    def command(*arguments: str):
        return launch([sys.executable, "-m", *arguments], cwd=here)

    done = command("mpibow.train", "run.yaml", "--check")
    assert (done.returncode, "dense2" in done.stdout) == (0, True)
    well(command("mpibow.train", "run.yaml", "learners=auto", "--timeline", "run.json"))
    assert json.loads(Path("run.json").read_text())["traceEvents"]
    done = command("mpibow.evaluate", "runs/run", "test", "--json")
    assert json.loads(done.stdout)["samples"] == 20
    done = well(command("mpibow.sweep", "run.yaml", "model.width=4,5", "--output", "swept", "--table"))
    assert "model.width" in done.stdout


@needs_mpi
@pytest.mark.slow
def test_two_ranks_train_it_and_must_have_the_same_file(here: Path):
    well(mpirun(2, "-m", "mpibow.train", "run.yaml", cwd=here))
    Path("run.py").write_text(
        "import sys\nfrom pathlib import Path\nfrom mpi4py import MPI\nfrom mpibow.train import main\n"
        "rank = MPI.COMM_WORLD.rank\nPath(f'of{rank}').mkdir(exist_ok=True)\n"
        "Path(f'of{rank}/mynet.py').write_text(Path('mynet.py').read_text() + '#' * rank)\n"
        "main(['run.yaml', f'model.name=of{rank}/mynet.py:net', 'name=other'])\n"
    )
    done = mpirun(2, "run.py", cwd=here)
    assert done.returncode == CommunicationError.code
    assert "rank 1: has other settings than rank 0: model.name is of1/mynet.py:net, on rank 0 of0/mynet" in done.stderr


def test_evaluate_has_a_message_for_what_is_not_there(here: Path, capsys):
    with exits(4):
        evaluation.main(["nowhere", "data/test"])
    assert capsys.readouterr().err == (
        "error: nowhere: does not exist; give a run directory, a checkpoint or a safetensors file\n"
    )
