"""A run that was stopped and resumed, wherever and however, is the run that was not: bit for bit."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from mpibow import dense, flatten
from mpibow.comm import Communicator
from mpibow.data import Array
from mpibow.errors import CheckpointError
from mpibow.models.augmentation import Augmentation, ColourJitter
from mpibow.run.checkpoint import read_arrays
from mpibow.run.results import Trained
from mpibow.run.session import Session
from mpibow.train import iterate
from tests.comm.threads import on_threads
from tests.refusals import refuses
from tests.run import tiny

TIMES = (
    "time", "seconds", "elapsed", "images_per_second", "data_wait", "sync_wait", "sync_busy", "sync_hidden", "path",
    "versions",
)  # fmt: skip
AUGMENTED = Augmentation(pad=1, crop=5, flip=True, cutout=2, jitter=ColourJitter(0.4, 0.4))
AT_END, EVERY = tiny.keeping(1000), tiny.keeping(1)


def point(folder: Path, iteration: int) -> Path:
    return folder / f"run/checkpoints/iteration-{iteration:010d}"


def saving(*iterations: int) -> Callable[[Session], None]:
    """Saves before these iterations, of which it was not resumed at one."""

    def save(session: Session) -> None:
        if session.iteration in iterations and not point(session.reporter.folder.parent, session.iteration).exists():
            session.save()

    return save


def entries(folder: Path) -> list[dict]:
    """What happened, without when, where and how fast; without starts and ends, of which a resumed run has more."""
    lines = [line for line in tiny.events(folder / "run") if line["event"] in ("train", "evaluate", "agree")]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def arrays(folder: Path, iteration: int) -> dict[str, bytes]:
    files = sorted(point(folder, iteration).glob("*.safetensors"))
    return {file.name: file.read_bytes() for file in files}


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target


def check_resumed(
    folder: Path,
    *cuts: int,
    ranks: int = 1,
    end: int = 40,
    before: Callable[[Session], None] = lambda session: None,
    **settings,
) -> dict[str, Array]:
    """The weights of a run; one that is resumed at any of `cuts` ends with all that it saves, byte for byte."""
    settings = {"checkpoint": AT_END, "iterations": end, **settings}

    def both(session: Session) -> None:
        saving(*cuts)(session)
        before(session)

    whole, *_ = tiny.watch(folder / "whole", ranks, before=both, **settings)
    for cut in cuts:
        again = copy(folder / "whole", folder / f"from {cut}")
        tiny.watch(again, ranks, before=before, resume=point(again, cut), **settings)
        assert arrays(again, end) == arrays(folder / "whole", end), cut
    return whole.weights


@dataclass
class Asked:
    """Signals as `train` reads them."""

    received: str = ""


def until_signal(work: tiny.Job, iteration: int) -> list[Trained]:
    """A run whose second rank is told to stop at `iteration`."""

    def body(comm: Communicator) -> Trained:
        asked = Asked()
        with Session(work, comm, None, "") as session:
            stop = ""
            while not (stop := stop or session.limit_reached()):
                if comm.rank == 1 and session.iteration >= iteration:
                    asked.received = "SIGUSR1"
                stop = iterate(session, asked)  # type: ignore[arg-type]
            return session.finish(stop)

    return on_threads(2, body)


@pytest.mark.parametrize("rule", tiny.RULES.values(), ids=tiny.RULES.keys())
def test_resume_from_any_checkpoint(tmp_path, rule):
    """The arrays of all later checkpoints are the same bytes, and metrics.jsonl tells the same, once."""
    settings = {
        "rule": {**rule, "resync": 8},
        "learners": 2,
        "precision": "float32",
        "net": tiny.normed,
        "checkpoint": AT_END,
    }
    cuts = (1, 16, 17, 21, 39)
    tiny.watch(tmp_path / "whole", 2, before=saving(*cuts), **settings)
    for cut in cuts:
        folder = copy(tmp_path / "whole", tmp_path / str(cut))
        tiny.watch(folder, 2, before=saving(*cuts), resume=point(folder, cut), **settings)
        for later in [*(later for later in cuts if later > cut), 40]:
            assert arrays(folder, later) == arrays(tmp_path / "whole", later), (cut, later)
        assert entries(folder) == entries(tmp_path / "whole"), cut
        summaries = [tiny.summary(place) for place in (folder, tmp_path / "whole")]
        for field in ("samples", "accuracy", "best_accuracy", "test_loss", "iterations", "gain", "drift"):
            assert summaries[0][field] == summaries[1][field], (cut, field)


DROPS = {"lr": 0.05, "momentum": 0.9, "schedule": {"name": "step", "every": 1.0, "factor": 0.7}}
GROUPS = [{"match": "*.bias", "weight_decay": 0.2}, {"match": "dense1.weight", "lr_scale": 0.5}]
OPTIONS = {
    "unequal": {"learners": [1, 3]},
    "sequential": {"overlap": False},
    "prefetch": {"precision": "float32", "prefetch": 5},
    "nesterov": {"update": {"lr": 0.02, "momentum": 0.9, "nesterov": True, "warmup": {"epochs": 5}}},
    "fixed": {
        "rule": {"name": "crossbow", "alpha": 0.1, "momentum": 0.5, "reset_momentum": True, "restart": [3.0, 4.0]}
    },
    "drops": {"update": DROPS},
    "drops-4": {"update": DROPS, "rule": {"name": "crossbow", "period": 4}},
    "augmentation": {"augmentation": AUGMENTED, "normalise": "pixel"},
    "mixup": {"augmentation": Augmentation(mixup=0.2)},
    "average": {"ema": {"half_life": 50, "every": 3}},
    "groups": {"update": {"lr": 0.05, "momentum": 0.9, "groups": GROUPS}},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_resume_with_any_option(tmp_path, option):
    """Averaging starts again before iteration 15 and 19, where epochs end."""
    check_resumed(tmp_path, 10, 15, 18, 19, 20, ranks=2, **{"net": tiny.normed, "learners": 2, **OPTIONS[option]})


def test_one_learner_alone(tmp_path):
    check_resumed(tmp_path, 13)


@pytest.mark.parametrize("iteration", [0, 3, 8, 9, 17, 18, 30])
def test_a_signal_and_resume_is_the_whole_run(tmp_path, iteration):
    """Told at iteration 3, 8 or 17, the ranks stop where an epoch ends: its evaluation is not lost."""
    settings = {"learners": 2, "rule": {"name": "sma", "resync": 8}, "evaluate": {"every": 1}}
    whole = tiny.train(tmp_path / "whole", 2, **settings)
    work = tiny.job(tmp_path / "cut", **settings)
    first, second = until_signal(work, iteration)
    assert first.summary.stopped == second.summary.stopped == "SIGUSR1"
    assert first.summary.iterations == iteration + 2  # the wish crosses beside the next gradients
    assert point(tmp_path / "cut", iteration + 2).is_dir()
    resumed = tiny.run(work, 2, resume="auto")
    assert resumed.summary.stopped == "stop.iterations 40"
    assert tiny.same_bits(resumed.weights, whole.weights)
    assert entries(tmp_path / "cut") == entries(tmp_path / "whole")


def test_of_a_run_that_saves_at_signals_alone_the_end_is_kept(tmp_path):
    work = tiny.job(tmp_path, checkpoint={"every": None}, learners=2)
    until_signal(work, 8)
    resumed = tiny.run(work, 2, resume="auto")
    assert resumed.summary.checkpoint == str(point(tmp_path, 40))
    for name, array in read_arrays(point(tmp_path, 40), "centre").items():
        np.testing.assert_array_equal(array, resumed.weights[name])


def test_while_a_resumed_run_goes_on_there_is_no_summary(tmp_path):
    tiny.train(tmp_path, iterations=5, checkpoint=EVERY)
    assert (tmp_path / "run/summary.json").exists()
    tiny.killed(tiny.job(tmp_path, checkpoint=EVERY), 12, resume="auto")
    assert not (tmp_path / "run/summary.json").exists()


def test_a_signal_at_the_end_finds_the_run_at_its_end(tmp_path):
    first, second = until_signal(tiny.job(tmp_path, learners=2), 39)
    assert first.summary.stopped == second.summary.stopped == "stop.iterations 40"


# Learners that come and go


@tiny.rules("auto", "crossbow-3", "slowmo", "ssgd")
def test_resume_around_a_change_of_learners(tmp_path, rule):
    """Before it begins, at 13 and 23, where it begins, and after: a checkpoint holds what was announced."""
    cuts, announce = (10, 11, 12, 13, 14, 22, 23, 24), tiny.announcing({10: (3, 1), 20: (1, 2)})
    check_resumed(tmp_path, *cuts, ranks=2, before=announce, rule=rule, learners=2, net=tiny.normed)


def test_learners_on_one_copy_of_the_weights(tmp_path):
    """One rank's, whose step is one pass; from iteration 13 on there are four."""

    def before(session: Session) -> None:
        assert session.replicas.one
        tiny.announcing({10: (4,)})(session)

    settings = {"rule": "ssgd", "learners": 2, "precision": "float32", "net": tiny.normed}
    check_resumed(tmp_path, 1, 12, 13, 14, 39, before=before, **settings)


# Another topology


@tiny.rules("auto", "crossbow", "ssgd")
def test_other_learners_restart_from_the_centre(tmp_path, rule, capsys):
    settings = {"rule": rule, "checkpoint": EVERY, "iterations": 20}
    before = tiny.train(tmp_path, 2, learners=2, **settings)
    capsys.readouterr()
    position = before.summary.samples
    more = {**settings, "iterations": 35}
    seen = tiny.watch(tmp_path, 1, learners=3, resume=tmp_path / "run", **more)
    said = capsys.readouterr().err.splitlines()
    assert f"continuing {point(tmp_path, 20)} at iteration 20" in said
    assert "learners were 2 + 2: averaging restarts from the centre, and the optimiser's states are 0" in said
    # The stream goes on where it was, so the epoch that was begun is completed.
    stream = np.concatenate([np.concatenate(slots) for slots in seen[0].samples])
    assert len(stream) == 15 * 3 * 3
    rest = -position % tiny.COUNT
    assert len(set(stream[:rest].tolist())) == rest
    assert sorted(stream[rest : rest + tiny.COUNT].tolist()) == list(range(tiny.COUNT))
    # And so once more from there.
    last = tiny.train(tmp_path, 2, learners=1, resume="auto", **{**settings, "stop": {"epochs": 10}})
    assert last.summary.samples >= 10 * tiny.COUNT
    assert last.summary.learners == (1, 1)


def test_another_batch_size_goes_on_from_the_same_sample(tmp_path):
    tiny.train(tmp_path, learners=2, checkpoint=EVERY, iterations=20)
    seen = tiny.watch(tmp_path, learners=2, batch_size=5, resume="auto")
    assert len(seen[0].samples) == 20
    stream = np.concatenate([np.concatenate(slots) for slots in seen[0].samples])
    rest = -20 * 2 * 3 % tiny.COUNT
    assert sorted(stream[rest : rest + tiny.COUNT].tolist()) == list(range(tiny.COUNT))
    assert tiny.summary(tmp_path)["samples"] == 20 * 2 * 3 + 20 * 2 * 5


# Which checkpoint


def test_auto_without_a_run_is_a_new_run(tmp_path, capsys):
    found = tiny.train(tmp_path, resume="auto")
    assert found.summary.iterations == 40
    assert f"no run to resume in {tmp_path}: starting a new one" in capsys.readouterr().err.splitlines()


def test_auto_before_the_first_checkpoint_is_a_new_run(tmp_path):
    """A batch system starts the same command again after a kill, at whatever time that came."""
    whole = tiny.train(tmp_path / "whole", learners=2)
    work = tiny.job(tmp_path / "cut", learners=2)
    tiny.killed(work, 12)
    assert tiny.same_bits(tiny.run(work, resume="auto").weights, whole.weights)
    assert entries(tmp_path / "cut") == entries(tmp_path / "whole")


def test_auto_takes_the_newest_run(tmp_path):
    newest = "tiny-20261130-235959"
    for name in ("tiny-20261130-000000", "c", newest, "tiny-2-20261130-000000"):
        tiny.train(tmp_path, name=name, checkpoint=EVERY, iterations=5)
    found = tiny.train(tmp_path, name="auto", resume="auto")
    assert found.summary.run == str(tmp_path / newest)
    named = tiny.train(tmp_path, name="c", resume="auto")
    assert named.summary.run == str(tmp_path / "c")


def test_best_can_be_resumed(tmp_path):
    work = tiny.job(tmp_path, checkpoint={"every": "1 epoch", "keep": 1})
    tiny.run(work)
    best = tmp_path / "run/checkpoints/best"
    assert best.is_symlink()
    iteration = json.loads((best / "checkpoint.json").read_text())["iteration"]
    assert best.resolve() == point(tmp_path, iteration)
    assert tiny.run(work, resume=best).summary.iterations == 40


def test_going_back_leaves_nothing_of_the_way_that_was_left(tmp_path):
    """Checkpoints ahead of a resumed one were another run's: they must not outlive, or crowd out, its own."""
    settings = {"learners": 2, "checkpoint": {"every": "5 iterations", "keep": 2, "best": False}}
    tiny.train(tmp_path, **settings)
    slower = tiny.job(tmp_path, update={"lr": 0.01, "momentum": 0.9}, iterations=36, **settings)
    found = tiny.run(slower, resume=point(tmp_path, 35))
    assert sorted(p.name[-2:] for p in (tmp_path / "run/checkpoints").glob("iteration-*")) == ["35", "36"]
    again = tiny.run(slower, resume="auto")
    assert tiny.same_bits(again.weights, found.weights)


def test_going_back_takes_the_best_back(tmp_path):
    """To the end of the first epoch, 46 samples at 6 an iteration; from there on nothing more is learnt."""
    settings = {"validation": 0.2, "learners": 2, "rule": "ssgd", "checkpoint": {"keep": 100, "metric": "loss"}}
    tiny.train(tmp_path, **settings)
    tiny.train(tmp_path, resume=point(tmp_path, 8), update={"lr": 1e-30}, **settings)
    assert (tmp_path / "run/checkpoints/best").resolve() == point(tmp_path, 8)


# Damage


TWO_POINTS = {
    "learners": 2,
    "rule": {"name": "crossbow", "period": 3},
    "checkpoint": {"every": "10 iterations", "keep": 2, "best": False},
}


@pytest.fixture(scope="module")
def two_points(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    tiny.train(folder, 2, **TWO_POINTS)
    return folder


def resumed(folder: Path, **settings) -> Trained:
    return tiny.train(folder, 2, resume=folder / "run", **{**TWO_POINTS, **settings})


FILES = ("centre.safetensors", "common.safetensors", "rank-0.safetensors", "rank-1.safetensors", "checkpoint.json")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("harm", ["flip", "cut", "grow", "empty", "remove"])
def test_a_damaged_file_is_named_and_the_checkpoint_before_it_taken(tmp_path, two_points: Path, file, harm, capsys):
    folder = copy(two_points, tmp_path / "damaged")
    path = point(folder, 40) / file
    data = path.read_bytes()
    middle = len(data) // 2
    if harm == "remove":
        path.unlink()
    else:
        flipped = data[:middle] + bytes([data[middle] ^ 16]) + data[middle + 1 :]
        path.write_bytes({"flip": flipped, "cut": data[:-2], "grow": data + b"\0", "empty": b""}[harm])
        size = path.stat().st_size
    found = resumed(folder)
    said = capsys.readouterr().err
    notes = [line for line in said.splitlines() if line.endswith("; using the checkpoint before it")]
    assert len(notes) == 1
    assert notes[0].startswith(f"{path}: ")
    if harm == "remove":
        assert notes[0] == f"{path}: cannot be read: no such file or directory; using the checkpoint before it"
    elif file == "checkpoint.json":
        assert notes[0] == f"{path}: is damaged: its checksum does not match; using the checkpoint before it"
    else:
        assert notes[0].startswith(f"{path}: is damaged: {size} bytes with CRC32C 0x")
        assert f", checkpoint.json has {len(data)} with 0x" in notes[0]
    assert f"continuing {point(folder, 30)} at iteration 30" in said
    assert arrays(folder, 40) == arrays(two_points, 40)
    assert found.summary.iterations == 40


def test_all_damaged(tmp_path, two_points: Path):
    folder = copy(two_points, tmp_path / "damaged")
    first, second = point(folder, 40) / "centre.safetensors", point(folder, 30) / "rank-1.safetensors"
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    with tiny.unchanged(folder), pytest.raises(CheckpointError) as caught:
        resumed(folder)
    text = str(caught.value)
    assert text.startswith(f"{folder / 'run'}: holds no complete checkpoint\n")
    assert f"\n{first}: cannot be read: no such file or directory\n" in text
    assert f"\n{second}: is damaged: " in text


def test_a_checkpoint_by_path_is_followed_by_those_before_it(tmp_path, two_points: Path):
    folder = copy(two_points, tmp_path / "damaged")
    (point(folder, 30) / "checkpoint.json").unlink()
    with pytest.raises(CheckpointError, match="holds no complete checkpoint"):
        tiny.train(folder, 2, resume=point(folder, 30), **TWO_POINTS)


def test_another_version_of_the_format(tmp_path, two_points: Path):
    folder = copy(two_points, tmp_path / "other")
    shutil.rmtree(point(folder, 30))
    tiny.seal(point(folder, 40), lambda header: {**header, "format": 3})
    with pytest.raises(CheckpointError, match="has format 3, this version reads 2"):
        resumed(folder)


# Another run


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seed": 2}, "seed 1, this run has 2"),
        ({"precision": "float32"}, "precision float64, this run has float32"),
        ({"net": lambda image: dense(flatten(image), 3)}, "another model, its weights have other names or shapes"),
        ({"train": tiny.ArrayData(*tiny.images(60), classes=3)}, "train_samples 57, this run has 60"),
    ],
    ids=["seed", "precision", "model", "data"],
)
def test_the_checkpoint_of_another_run(tmp_path, two_points: Path, change, why):
    folder = copy(two_points, tmp_path / "other")
    remedy = "resume with the same config, or start anew without --resume"
    with tiny.unchanged(folder), refuses(f"{point(folder, 40)}: was made with {why}; {remedy}", CheckpointError):
        resumed(folder, **change)


def test_a_run_of_another_name_is_not_continued(two_points: Path):
    run = two_points / "run"
    with tiny.unchanged(run), refuses(
        f"name: other is another run, and {run} is continued; leave it out, or start anew with "
        f"model.weights={point(two_points, 40)}"
    ):  # fmt: skip
        resumed(two_points, name="other")


def test_as_many_samples_of_other_contents(tmp_path, two_points: Path):
    folder, (images, labels) = copy(two_points, tmp_path / "other"), tiny.images()
    other = tiny.ArrayData(images, labels[::-1])
    message = f"{point(folder, 40)}: was made with other training data; give the same, or start anew without --resume"
    with tiny.unchanged(folder), refuses(message, CheckpointError):
        resumed(folder, train=other)


def test_a_higher_target_is_still_to_be_reached(tmp_path):
    def stop(accuracy: float) -> dict:
        return {"epochs": None, "iterations": 40, "accuracy": accuracy}

    first = tiny.train(tmp_path, stop=stop(0.5), learners=2, checkpoint={"every": "1 epoch"})
    assert first.summary.stopped == "stop.accuracy 0.5"
    assert first.summary.iterations < 40
    second = tiny.train(tmp_path, stop=stop(1.0), learners=2, resume="auto")
    assert second.summary.target == 1.0
    assert second.summary.iterations > first.summary.iterations
    assert (second.summary.epochs_to_target or 0) > (first.summary.epochs_to_target or 0)
