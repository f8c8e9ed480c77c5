"""Training end to end: the built-in run, its files, and `mpibow.fit` from a script."""

import json
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from rlcompleter import Completer

import numpy as np
import pytest

import mpibow
from mpibow import dense, flatten, relu
from mpibow.config import describe, load
from mpibow.data import Array
from mpibow.data.dataset import channels_last
from mpibow.errors import ConfigError, RecordError, ShapeError
from mpibow.graph import Tensor
from mpibow.run import reporter, saving
from mpibow.run.describe import describe_job
from mpibow.run.session import Session
from mpibow.sync.gain import CERTAIN
from mpibow.system import in_words
from mpibow.train import iterate
from tests.clock import Clock
from tests.launching import RANKS, mpirun, needs_mpi, run, well
from tests.refusals import refuses
from tests.run import tiny
from tests.run.processes import write_run


def check_files(folder: Path, ranks: int) -> dict:
    """A finished run's directory holds what it should, and it all fits together; its summary."""
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoints", "config.yaml", "log.txt", "metrics.jsonl", "summary.json",
    ]  # fmt: skip
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["ranks"], summary["learners"]) == (ranks, [2] * ranks)
    assert (summary["changes"], summary["settled"]) == (0, None)  # they are given
    assert {"python", "numpy", "mpibow"} <= set(summary["versions"])
    assert summary["images_per_second"] == pytest.approx(summary["samples"] / summary["seconds"])
    config = load(folder / "config.yaml")
    assert config.text == (folder / "config.yaml").read_text()
    events = tiny.events(folder)
    kinds = [event["event"] for event in events]
    assert kinds[0] == "start"
    assert kinds[-1] == "end"
    assert {"train", "evaluate", "checkpoint"} <= set(kinds)
    assert all(a["time"] <= b["time"] and a["position"] <= b["position"] for a, b in pairwise(events))
    evaluated = [event for event in events if event["event"] == "evaluate"]
    assert evaluated[-1]["accuracy"] == summary["accuracy"]
    assert max(event["accuracy"] for event in evaluated) == summary["best_accuracy"]
    per_iteration = ranks * 2 * config.batch_size
    assert all(event["position"] == event["iteration"] * per_iteration for event in events)
    best = (folder / "checkpoints/best/checkpoint.json").read_text()
    assert json.loads(best)["ledger"]["accuracy"] == summary["best_accuracy"]
    assert (folder.parent.parent / summary["checkpoint"]).is_dir()
    return summary


def test_the_built_in_run(tmp_path):
    """Alone and from nothing: it converts the digits, learns them, and says what a user needs to know."""
    done = well(run([sys.executable, "-m", "mpibow.train", "stop.epochs=3", "log.every=20"], cwd=tmp_path))
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("convnet-digits-")
    summary = check_files(folder, 1)
    assert summary["stopped"] == "stop.epochs 3"
    assert summary["epochs"] == pytest.approx(3, abs=0.02)
    assert summary["accuracy"] > 0.8  # chance is 0.1
    said = done.stderr.splitlines()
    first = next(line for line in said if not line.startswith("compil"))  # what a cold cache adds stands in front
    assert first == "one process: no launcher found; mpirun -np N python -m mpibow.train uses N"
    assert f"run directory runs/{folder.name}" in said
    assert f"test accuracy {summary['accuracy']:.2%} (best {summary['best_accuracy']:.2%})" in said
    stamped = [line for line in (folder / "log.txt").read_text().splitlines() if re.match(r"20\d\d-", line)]
    logged = [line.split(" ", 2)[2] for line in stamped]
    assert [line for line in logged if line not in said] == []
    losses = [event["loss"] for event in tiny.events(folder, "train")]
    assert losses[-1] < losses[0] / 3
    assert not list(tmp_path.glob(".*"))


@needs_mpi
def test_ranks_and_learners(tmp_path):
    arguments = ["stop.epochs=3", "name=pair", "learners=2"]
    done = well(mpirun(RANKS, "-m", "mpibow.train", *arguments, cwd=tmp_path))
    summary = check_files(tmp_path / "runs/pair", RANKS)
    assert summary["accuracy"] > 0.8
    assert done.stderr.count("stopped by stop.epochs 3") == 1
    assert "Traceback" not in done.stderr


def test_check_trains_nothing(tmp_path):
    write_run(tmp_path, device="auto")
    with tiny.unchanged(tmp_path):
        done = run([sys.executable, "-m", "mpibow.train", "run.yaml", "--check", "learners=3"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "train: 57 samples (1, 6, 6) uint8, 3 classes" in lines
    assert "test: 20 samples (1, 6, 6) uint8, 3 classes" in lines
    assert "learners: 3" in lines
    assert any("backward dense" in line for line in lines)
    assert lines[-1].startswith(
        "rank 0: 3 learner(s) x (arena 0.0 MiB + weights, gradients and momenta 0.0 MiB + slots 0."
    )


def test_a_rate_of_another_optimiser_is_told_of(tmp_path):
    """In the log, and by --check; the settings may come through a pipe."""
    write_run(tmp_path, device="auto", stop={"epochs": None, "iterations": 2})
    warning = "warning: update.lr: 0.01 in run.yaml was chosen for sgd, and adamw uses it now; set a rate for adamw, as"
    train = [sys.executable, "-m", "mpibow.train"]
    done = run([*train, "run.yaml", "--check", "update.name=adamw"], cwd=tmp_path)
    assert done.stderr.startswith(warning)
    done = run([*train, "run.yaml", "update.name=adamw"], cwd=tmp_path)
    assert done.stderr.count(warning) == (tmp_path / "runs/run/log.txt").read_text().count(warning) == 1
    piped = "cat run.yaml | " + shlex.join([*train, "/dev/stdin", "update.name=adamw", "update.lr=0.002", "name=piped"])
    assert "warning: update.lr" not in well(run(["sh", "-c", piped], cwd=tmp_path)).stderr


def test_check_with_learners_that_are_looked_for(tmp_path):
    """With a large batch a learner takes some memory, and there is room for a number that a hand can check."""
    data = tiny.ArrayData(*tiny.images(20_000))
    work = tiny.job(tmp_path, train=data, learners="auto", batch_size=1000, tuner={"most": 7})
    plan, evaluation = work.training_plan(), work.evaluation_plan()
    flat = 8 * work.layout.size
    slots = 4 * 1000 * (36 + 4 + 16)  # pixels, label and counter of a sample; two ahead, one in use, and the inputs
    learner = plan.arena_bytes + 3 * flat + evaluation.arena_bytes + slots
    free = int(5.01 * learner / 0.8)
    lines = describe_job(work, (1, 1), [free, 10**12]).splitlines()
    mib = 2**20
    begin = (
        f"auto, begins with 1 learner(s) x (arena {plan.arena_bytes / mib:.1f} MiB + weights, gradients and momenta "
        f"{3 * flat / mib:.1f} MiB + slots 0.2 MiB) + averaging {5 * flat / mib:.1f} MiB = "
        f"{(plan.arena_bytes + slots + 8 * flat) / mib:.1f} MiB of "
    )
    assert lines[-2:] == [
        f"rank 0: {begin}{in_words(free)} that are free for a rank; up to 5 learner(s), for memory",
        f"rank 1: {begin}{in_words(10**12)} that are free for a rank; up to 7 learner(s), no more are tried",
    ]
    fixed = describe_job(tiny.job(tmp_path, learners=2), (2,), [2**30]).splitlines()[-1]
    assert fixed.startswith("rank 0: 2 learner(s) x (arena ")
    assert fixed.endswith(" MiB of 1.0 GiB that are free for a rank")
    many = describe_job(tiny.job(tmp_path, learners=2), (2,) * 20, range(2**30, 2**30 - 20, -1)).splitlines()[-9:]
    assert (many[0][:8], many[-1]) == ("rank 19:", "... and 12 more ranks with more for each")


@pytest.mark.parametrize(("update", "names", "arrays"), [
    ({"name": "sgd"}, "weights", 1), ({"momentum": 0.9}, "weights and momenta", 2),
    ({"name": "adamw"}, "weights, exp_avg and exp_avg_sq", 3),
])  # fmt: skip
def test_check_with_one_copy_of_the_weights(tmp_path, update, names, arrays):
    """A learner under S-SGD has its gradients; weights and states are there once."""

    def wide(image: Tensor) -> Tensor:
        return dense(relu(dense(flatten(image), 10_000)), tiny.CLASSES)

    settings = {"update": {"lr": 0.01, **update}, "rule": {"name": "ssgd"}, "tuner": {"most": 7}}
    work = tiny.job(
        tmp_path,
        net=wide,
        train=tiny.ArrayData(*tiny.images(20_000)),
        learners="auto",
        batch_size=100,
        test=None,
        **settings,
    )
    arena, flat, mib = work.training_plan().arena_bytes, 8 * work.layout.size, 2**20
    slots = 4 * 100 * (36 + 4 + 16)
    free = int(5.01 * (arena + flat + slots) / 0.8)
    assert describe_job(work, (3,), [free]).splitlines()[-1] == (
        f"rank 0: auto, begins with 3 learner(s) x (arena {arena / mib:.1f} MiB + gradients {flat / mib:.1f} MiB + "
        f"slots {slots / mib:.1f} MiB) + one copy of {names} {arrays * flat / mib:.1f} MiB + averaging "
        f"{5 * flat / mib:.1f} MiB = {(3 * (arena + flat + slots) + (arrays + 5) * flat) / mib:.1f} MiB of "
        f"{in_words(free)} that are free for a rank; up to 5 learner(s), for memory"
    )


def test_help_lists_every_setting():
    done = run([sys.executable, "-m", "mpibow.train", "--help"])
    assert done.returncode == 0
    assert describe() in done.stdout
    assert "--resume" in done.stdout


# Where a run ends


@pytest.mark.parametrize("ranks", [1, 2])
def test_stop_at_an_accuracy(tmp_path, ranks):
    stop = {"epochs": 50, "accuracy": 0.9}
    summary = tiny.run(tiny.job(tmp_path, stop=stop), ranks).summary
    assert summary.stopped == "stop.accuracy 0.9"
    assert summary.target == 0.9
    assert (summary.accuracy or 0) >= 0.9
    assert summary.epochs_to_target == summary.epochs < 50
    assert 0 < (summary.seconds_to_target or 0) <= summary.seconds
    evaluations = tiny.events(tmp_path / "run", "evaluate")
    assert [event["accuracy"] >= 0.9 for event in evaluations] == [False] * (len(evaluations) - 1) + [True]


def test_a_target_that_is_not_reached(tmp_path):
    stop = {"epochs": 1, "accuracy": 1.0}
    summary = tiny.run(tiny.job(tmp_path, stop=stop, update={"lr": 1e-6})).summary
    assert summary.stopped == "stop.epochs 1"
    assert (summary.epochs_to_target, summary.seconds_to_target) == (None, None)
    assert "target 100.00% not reached" in str(summary)


@pytest.mark.parametrize("ranks", [1, 2])
def test_stop_after_minutes(tmp_path, ranks):
    summary = tiny.run(tiny.job(tmp_path, stop={"epochs": None, "minutes": 0.01}), ranks).summary
    assert summary.stopped == "stop.minutes 0.01"
    assert summary.seconds > 0.5
    assert summary.accuracy is not None


def test_checkpoints_by_the_minute(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, saving, reporter)

    def before(session: Session) -> None:
        clock.now += 0.1 * (session.rank == 0)

    every = {"every": "0.005 minutes", "keep": 100}
    stop = {"epochs": None, "minutes": 0.02}
    tiny.watch(tmp_path, 2, before=before, stop=stop, checkpoint=every, evaluate={"every": 10**6})
    assert 2 <= len(tiny.events(tmp_path / "run", "checkpoint")) <= 6


def test_without_test_data(tmp_path):
    summary = tiny.run(tiny.job(tmp_path, checkpoint={"every": "1 epoch"}, test=None)).summary
    assert (summary.accuracy, summary.best_accuracy, summary.test_loss) == (None, None, None)
    assert summary.evaluation_seconds == 0
    assert summary.checkpoint is not None


def test_metrics_are_means_over_what_was_trained(tmp_path):
    """With a rate of almost nothing every loss is the first one; each entry counts exactly its own samples."""
    summary = tiny.run(tiny.job(tmp_path, learners=2, update={"lr": 1e-12}, log={"every": 1}), 2).summary
    entries = tiny.events(tmp_path / "run", "train")
    assert (entries[0]["loss"], entries[0]["accuracy"]) == (None, None)  # no all-reduce has carried one yet
    losses = np.array([entry["loss"] for entry in entries[1:]])
    assert len(losses) == 39
    assert losses.mean() == pytest.approx(summary.test_loss, rel=0.1)
    assert losses.std() < 0.3 * losses.mean()


def test_metrics_tell_gain_and_agreement(tmp_path):
    settings = {"rule": {"name": "sma", "resync": 8}, "log": {"every": 1}, "checkpoint": {"every": "9 iterations"}}
    summary = tiny.run(tiny.job(tmp_path, learners=2, **settings), 2).summary
    assert [event["iteration"] for event in tiny.events(tmp_path / "run", "agree")] == [8, 16, 24, 32, 40]
    assert all(event["drift"] < 1e-12 and event["mismatches"] == 0 for event in tiny.events(tmp_path / "run", "agree"))
    gains = [event["gain"] for event in tiny.events(tmp_path / "run", "train")]
    assert gains[0] == 1.0  # of the iteration before
    assert all(1.0 < gain <= 1 + 3 * i / CERTAIN for i, gain in enumerate(gains[1:], 1))
    assert 1.0 < summary.gain < 1.7
    saved = [event["iteration"] for event in tiny.events(tmp_path / "run", "checkpoint")]
    assert {9, 18, 27, 36, 40} <= set(saved)


def test_the_loop_can_be_written_out(tmp_path):
    """`train` has no more to it than this."""
    from mpibow.comm import Single
    from mpibow.run.signals import Signals

    work = tiny.job(tmp_path / "a")
    with Signals() as signals, Session(work, Single()) as session:
        while not session.limit_reached():
            iterate(session, signals)
        found = session.finish("by hand")
    assert found.summary.stopped == "by hand"
    assert tiny.same_bits(found.weights, tiny.run(tiny.job(tmp_path / "b")).weights)


# mpibow.fit


def test_a_prompt_offers_all_names():
    assert set(mpibow.__all__) <= set(dir(mpibow))
    offered = Completer({"mb": mpibow}).attr_matches("mb.batch_")
    assert [name.rstrip("(") for name in offered] == ["mb.batch_norm"]
    assert {"mb.fit", "mb.Fitted", "mb.He"} <= {
        name.rstrip("()") for name in Completer({"mb": mpibow}).attr_matches("mb.")
    }


def small(image):
    return dense(relu(dense(flatten(image), 12)), 3)


SETTINGS = {
    "batch_size": 3, "learners": 2, "update": {"lr": 0.05, "momentum": 0.9}, "stop": {"epochs": 6},
    "checkpoint": {"every": None},
}  # fmt: skip


@pytest.mark.parametrize("form", ["uint8", "float32", "float64", "rows"])
def test_fit_and_predict(here: Path, form):
    images, labels = tiny.images(90)
    test, answers = tiny.images(31, seed=1)
    if form == "rows":
        images, test = images.reshape(90, 36), test.reshape(31, 36)
    elif form != "uint8":
        images, test = (each.astype(form) / 255 for each in (images, test))
    found = mpibow.fit(small, (images, labels), (test, answers), **SETTINGS)
    assert found.summary.accuracy > 0.9
    logits = found.predict(test, batch_size=7)
    assert logits.shape == (31, 3)
    assert (logits.argmax(axis=1) == answers).mean() == found.summary.accuracy
    np.testing.assert_allclose(found.predict(test, batch_size=100), logits, rtol=1e-5, atol=1e-5)
    assert found.predict(test[:0]).shape == (0, 3)
    assert set(found.weights) == {"dense1.weight", "dense1.bias", "dense2.weight", "dense2.bias"}
    (folder,) = (here / "runs").iterdir()
    assert folder.name.startswith("net-")
    assert repr(found) == f"Fitted(summary={found.summary!r}, rank=0)"


def test_predict_refuses_other_images(here: Path):
    found = mpibow.fit(small, tiny.images(), **{**SETTINGS, "stop": {"iterations": 2}})
    with refuses("images: must be (n, 1, 6, 6), got (2, 6, 6)"):
        found.predict(np.zeros((2, 6, 6), np.uint8))
    with refuses("images: must be uint8 as in training, got float64"):
        found.predict(np.zeros((2, 1, 6, 6)))  # cut to integers they would all be 0


class Stripes:
    """A data set that makes its samples when they are read."""

    name, count, shape, dtype, classes = "stripes", 64, (1, 4, 4), np.dtype(np.uint8), 2
    mean, std = (50.0,), (50.0,)

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        images[...] = 0
        for row, sample in enumerate(samples.tolist()):
            labels[row] = sample % 2
            images[row, 0, sample % 4 :: 2] = 100 + sample


def test_a_data_set_of_ones_own(here: Path):
    found = mpibow.fit(lambda image: dense(flatten(image), 2), Stripes(), Stripes(), **SETTINGS)
    assert found.summary.accuracy == 1.0
    assert found.summary.samples >= 6 * 64


@pytest.mark.parametrize(
    ("shape", "last"),
    [
        ((28, 28, 1), True), ((5, 480, 3), True), ((8, 8, 4), True), ((1, 28, 1), False), ((1, 28, 28), False),
        ((3, 3, 3), False), ((3, 32, 3), False), ((512, 4, 4), False), ((512, 1, 1), False), ((2, 5, 2), False),
        ((36,), False), ((28, 1), False),
    ],
)  # fmt: skip
def test_which_images_have_their_channels_last(shape, last):
    assert channels_last(shape) == last


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": {"name": "mlp"}}, ConfigError, "model: must be null as the program gives its own, got"),
        (
            {"train": (np.zeros((3, 1, 6, 6)), np.array([0, 1]))},
            RecordError,
            "train: images (3, 1, 6, 6) and labels (2,)",
        ),
        (
            {"train": (np.zeros((3, 28, 30, 1)), np.array([0, 1, 2]))},
            RecordError,
            "train: images (n, channels, height, width) are meant, (3, 28, 30, 1) has its channels last: give "
            "images.transpose(0, 3, 1, 2), or images.swapaxes(2, 3) if 28 are the channels",
        ),
        ({"test": (np.zeros((3, 8, 8, 3)), np.array([0, 1, 2]))}, RecordError, "test: images (n, channels, height"),
        (
            {"train": np.zeros((3, 1, 6, 6))},
            ConfigError,
            "train: must be (images, labels), arrays by name, a data set with __len__ and __getitem__, or a folder of "
            "records, got ndarray",
        ),
        (
            {"train": (np.zeros((3, 1, 6, 6)), np.array([0, 1, 2]), np.ones(3))},
            ConfigError,
            "train: must be two arrays, (inputs, targets), got 3; weights of samples are sample_weight=",
        ),
        (
            {"test": (np.zeros((3, 1, 6, 6), np.uint8), np.array([0, 1, 3]))},
            RecordError,
            "test: labels must lie in [0, 3)",
        ),
        (
            {"net": lambda image: dense(image, 3)},
            ShapeError,
            "softmax_cross_entropy1 (softmax_cross_entropy of dense1 (3, 1, 6, 3), label (3,)): logits must be",
        ),
        (
            {"net": lambda image: dense(flatten(image), 2)},
            ShapeError,
            "dense1: the net's output must be (batch, classes) with at least the 3 classes of train, got (3, 2)",
        ),
    ],
)
def test_fit_refuses(here: Path, change, error: type[Exception], message):
    arguments = {"net": small, "train": tiny.images(), "test": None, **SETTINGS, **change}
    net, train, test = (arguments.pop(name) for name in ("net", "train", "test"))
    with tiny.unchanged(here), pytest.raises(error) as caught:
        mpibow.fit(net, train, test, **arguments)
    assert str(caught.value).startswith(message)


PROGRAM = """
import os
import numpy as np
import mpibow
from mpibow import dense, flatten, relu

rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
generator = np.random.default_rng(0)
labels = np.arange(60) % 3
images = generator.random((60, 1, 6, 6))
images[np.arange(60), 0, 2 * labels] += 1


def net(image):
    if os.environ.get("FAIL") == "net" and rank == 1:
        raise ValueError("the net of rank 1 is broken")
    return dense(relu(dense(flatten(image), 12)), 3)


def fit(name):
    settings = {"update": {"lr": 0.1}, "stop": {"epochs": 8}, "evaluate": {"every": 5}}
    return mpibow.fit(net, (images, labels), (images, labels), name=name, batch_size=5, **settings)


found = fit("first")
print("accuracy", (found.predict(images).argmax(axis=1) == labels).mean(), flush=True)
if found.rank == 0:
    print("told once", flush=True)
if os.environ.get("FAIL") == "between" and rank == 1:
    raise ValueError("rank 1 is broken between two fits")
fit("second")
print("done", flush=True)
"""


@needs_mpi
def test_the_same_program_on_ranks(tmp_path):
    (tmp_path / "mine.py").write_text(PROGRAM)
    done = well(mpirun(RANKS, "mine.py", cwd=tmp_path))
    lines = done.stdout.splitlines()
    assert (lines.count("done"), lines.count("told once")) == (RANKS, 1)
    accuracies = {line for line in lines if line.startswith("accuracy")}
    assert len(accuracies) == 1  # every rank has the same net
    assert float(accuracies.pop().split()[1]) > 0.9
    assert len(list((tmp_path / "runs").iterdir())) == 2


@needs_mpi
@pytest.mark.parametrize("where", ["net", "between"])
def test_an_error_of_one_rank_ends_all(tmp_path, where):
    (tmp_path / "mine.py").write_text(PROGRAM)
    done = mpirun(RANKS, "mine.py", cwd=tmp_path, env={"FAIL": where})
    assert done.returncode not in (0, 75)
    assert "done" not in done.stdout
    assert done.stderr.count("ValueError: ") == 1
    assert "rank 1 is broken" in done.stderr
