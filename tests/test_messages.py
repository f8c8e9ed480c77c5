"""Bad input: each with its message in full and its exit code, and nothing half-written."""

import re
import resource
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mpibow.data import manifest, write_records
from mpibow.data.records import HEADER
from mpibow.models import MODELS, OBJECTIVES
from tests.launching import RANKS, in_turn, mpirun, needs_mpi, run
from tests.run import tiny
from tests.run.processes import write_run

SHORT = {"device": "auto", "stop": {"epochs": 2}, "evaluate": {"every": 1}, "checkpoint": {"every": "1 epoch"}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write_run(folder, **SHORT)
    (folder / "broken.yaml").write_text("model: {name: mlp\n")
    (folder / "empty.yaml").write_text("")
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    write_run(tmp_path, **SHORT)
    return tmp_path


def train(folder: Path, *arguments: str, ranks: int = 1) -> subprocess.CompletedProcess[str]:
    command = ["-m", "mpibow.train", *arguments]
    return mpirun(ranks, *command, cwd=folder) if ranks > 1 else run([sys.executable, *command], cwd=folder)


REFUSED = {
    "wrong type": ("batch_size=many", 2, "batch_size: must be an integer of at least 1, got 'many'"),
    "learners of other ranks": (
        "learners=[1, 2, 1]", 2,
        "learners: must have one number for each of 1 rank(s), got [1, 2, 1]; start 3 ranks or give 1 number(s)",
    ),
    "learners of no run": (
        "learners=replay(nowhere)", 2,
        "learners: nowhere/metrics.jsonl: cannot be read: no such file or directory; replay(RUN) takes a run directory",
    ),
    "unknown model": (
        "model.name=lenets", 2,
        f"model.name: must be one of {', '.join(sorted([*MODELS, *OBJECTIVES]))}, or a function of your own as "
        "mynet.py:net, got 'lenets'",
    ),
    "no file of a net": (
        "model.name=nowhere.py:net", 2, "model.name: nowhere.py: cannot be read: no such file or directory",
    ),
    "wrong model option": ("model.hidden=12", 2, "model.hidden: must be a list of integers or null, got 12"),
    "other classes": (
        "model.classes=100", 2,
        "data.train: data/train has 3 classes, model.classes is 100: type model.classes=3, or leave it out",
    ),
    "no data": ("data.train=nowhere", 3, "nowhere: there is no such folder; convert the data to it first"),
    "no test data": ("data.test=nowhere", 3, "nowhere: there is no such folder; convert the data to it first"),
    "restless replicas": (
        "rule={name: crossbow, alpha: 1.5}", 2,
        "rule.alpha: must be below 0.9744 for 2 learners, got 1.5; auto is 1 / learners",
    ),
    "out is a file": (
        "out=run.yaml", 9, "out: run.yaml/run cannot be made: not a directory; choose another place with out=DIR",
    ),
    "out cannot be made": (
        "out=/proc/none", 9,
        "out: /proc/none/run cannot be made: no such file or directory; choose another place with out=DIR",
    ),
    "no name": (
        "name=../up", 2,
        "name: must be a string of letters, digits, . _ - that starts with a letter, a digit or _, got '../up'",
    ),
}  # fmt: skip
if find_spec("numba"):  # without it, it is numba that is asked for
    REFUSED["no library"] = (
        "onednn.library=/nowhere/libdnnl.so", 7,
        "onednn.library: /nowhere/libdnnl.so cannot be loaded: /nowhere/libdnnl.so: cannot open shared object file: "
        "No such file or directory",
    )  # fmt: skip


UNREADABLE = (
        (["nowhere.yaml"], "nowhere.yaml: cannot be read: no such file or directory"),
        (["data"], "data: cannot be read: is a directory"),
        (["broken.yaml"], "broken.yaml: line 2, column 1: expected ',' or '}', but got '<stream end>'"),
        (["empty.yaml"], "empty.yaml: must be a mapping of settings, got null"),
        (["run.yaml", "learners"], "override 'learners': must be key.path=value, as in update.lr=0.1"),
        (["run.yaml", "batch_size=x", "seed=-1"],
         "batch_size: must be an integer of at least 1, got 'x'\n"
         "seed: must be an integer of at least 0 and below 4294967296, got -1"),
)  # fmt: skip


COMPILING = re.compile(r"^compiling kernels for this machine: 5 to 30 seconds\n")  # where nothing has yet


def train_many(commands: list[tuple[Path, list[str]]]) -> list[tuple[int, str]]:
    """The exit code and standard error of each command, of which none writes to standard output."""
    found = in_turn("mpibow.train", *commands)
    assert [done.stdout for done in found] == [""] * len(commands)
    return [(done.returncode, COMPILING.sub("", done.stderr)) for done in found]


def test_refused_at_the_door(whole: Path):
    """By a check too, but for what has to do with the run directory."""
    expected = {f"run.yaml {override}": (code, message) for override, code, message in REFUSED.values()}
    commands = {key: key.split(" ", 1) for key in expected}
    for override, code, message in REFUSED.values():
        if code != 9:
            expected[f"{override} --check"] = (code, message)
            commands[f"{override} --check"] = ["run.yaml", override, "--check"]
    for arguments, message in UNREADABLE:
        expected[str(arguments)] = (2, message)
        commands[str(arguments)] = arguments
    with tiny.unchanged(whole):
        found = train_many([(whole, arguments) for arguments in commands.values()])
    told = {key: (code, f"error: {message}\n") for key, (code, message) in expected.items()}
    assert dict(zip(commands, found, strict=True)) == told


def test_an_unknown_option_of_the_command(whole: Path):
    done = train(whole, "run.yaml", "--fast")
    assert done.returncode == 2
    assert done.stderr.endswith("error: unrecognized arguments: --fast\n")


# Records


def shard(folder: Path, name: str = "train") -> Path:
    (path,) = (folder / "data" / name).glob("*.mpr")
    return path


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 8
    path.write_bytes(data)


def other_shape(folder: Path) -> None:
    images, labels = tiny.images(5)
    write_records(folder / "data/wide", zip(images.repeat(2, axis=3), labels.tolist(), strict=True), classes=3)


def cut(folder: Path) -> None:
    path = shard(folder)
    path.write_bytes(path.read_bytes()[:-1])


def nothing(folder: Path) -> None:
    pass


# What is done to a run's data, what is typed, the exit code, and how the only line that is said begins.
UNFIT = {
    "images of another shape": (
        other_shape, ["data.test=data/wide"], 2,
        "data.test: wide has images (1, 6, 12) uint8, data.train has (1, 6, 6) uint8\n",
    ),
    "a net that does not fit": (
        nothing, ["model={name: lenet}"], 2,
        "conv2 (conv of max_pool1 (3, 32, 1, 1)): a window of 5x5 does not fit into 1x1\n",
    ),
    "a truncated file": (cut, [], 3, "SHARD: is SIZE bytes long, but its header has 57 records"),
    "a flipped bit in the header": (lambda folder: flip(shard(folder), 20), [], 3, "SHARD: "),
    "a flipped bit in the index": (lambda folder: flip(shard(folder), -5), [], 3, "SHARD: "),
    "a flipped bit in the manifest": (
        lambda folder: flip(folder / "data/train" / manifest.FILE, 30), [], 3, f"data/train/{manifest.FILE}: ",
    ),
    "nothing to resume": (
        nothing, ["--resume", "runs/nowhere"], 4,
        "runs/nowhere: is neither a checkpoint nor a run directory with checkpoints/ in it\n",
    ),
}  # fmt: skip


def test_data_that_do_not_fit_are_refused_before_a_run_begins(whole: Path, tmp_path):
    folders = [shutil.copytree(whole, tmp_path / name) for name in UNFIT]
    for folder, (damage, *_) in zip(folders, UNFIT.values(), strict=True):
        damage(folder)
    commands = [["run.yaml", *arguments] for _, arguments, *_ in UNFIT.values()]
    with tiny.unchanged(tmp_path):
        found = train_many(list(zip(folders, commands, strict=True)))
    for folder, (name, (_, _, code, message)), (ended, said) in zip(folders, UNFIT.items(), found, strict=True):
        path = shard(folder)
        start = message.replace("SHARD", str(path.relative_to(folder))).replace("SIZE", str(path.stat().st_size))
        assert (ended, said.count("\n")) == (code, 1), (name, said)
        assert said.startswith(f"error: {start}"), (name, said)


def test_a_flipped_bit_in_an_image(folder: Path):
    """Found when it is read, in the first epoch: file and record are named, what was saved before is kept."""
    path, record = shard(folder), 33
    flip(path, HEADER.size + record * 36 + 7)
    done = train(folder, "run.yaml", "checkpoint.every=1 iterations")
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {path.relative_to(folder)}: record {record}: checksum is 0x")
    assert last.endswith("; copy the file or convert the data again")
    assert "Traceback" not in done.stderr
    points = list((folder / "runs/run/checkpoints").glob("*"))
    assert all(point.name.startswith("iteration-") for point in points)
    assert not (folder / "runs/run/summary.json").exists()


def test_a_flipped_bit_in_a_test_image(folder: Path):
    path = shard(folder, "test")
    flip(path, HEADER.size + 11 * 36)
    done = train(folder, "run.yaml")
    assert done.returncode == 3
    assert f"error: {path.relative_to(folder)}: record 11: checksum is 0x" in done.stderr.splitlines()[-1]


# The disk


def test_a_full_disk(folder: Path):
    """No file may grow beyond 30 kB: the checkpoint is refused, what was saved before is whole."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    command = [sys.executable, "-m", "mpibow.train", "run.yaml", "stop.epochs=4", "checkpoint.every=10 iterations"]
    wide = ["model.hidden=[300]", "name=b"]
    done = subprocess.run(
        [*command, *wide], cwd=folder, preexec_fn=limited, capture_output=True, text=True, timeout=720, check=False
    )
    assert done.returncode == 4
    expected = "error: rank 0: runs/b/checkpoints: a checkpoint cannot be written: "
    last = done.stderr.splitlines()[-1]
    assert last.startswith(expected)
    assert "file too large" in last
    assert last.endswith("; choose another place with out=DIR")  # there is none before it, nor a full disk
    assert "Traceback" not in done.stderr
    assert list((folder / "runs/b/checkpoints").iterdir()) == []
    again = run([*command, *wide, "--resume", "auto"], cwd=folder)
    assert again.returncode == 0


def test_a_disk_that_fills_up_with_metrics(folder: Path):
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    done = subprocess.run(
        [sys.executable, "-m", "mpibow.train", "run.yaml", "stop.epochs=50", "checkpoint.every=null"],
        cwd=folder, preexec_fn=limited, capture_output=True, text=True, timeout=720, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("warning: runs/run/metrics.jsonl: ")]
    assert said[0] == (
        "warning: runs/run/metrics.jsonl: cannot be written: file too large; the run goes on and keeps the lines in "
        "memory"
    )
    assert re.fullmatch(r"warning: runs/run/metrics.jsonl: its last \d+ line\(s\) are lost: file too large", said[1])
    assert len(said) == 2
    assert (folder / "runs/run/summary.json").is_file()


def test_a_run_directory_that_takes_no_files_or_is_taken(folder: Path):
    """The same for root, to whom permissions mean nothing: something else stands where a file is to be written."""
    whole, files = folder / "whole", ("metrics.jsonl", "log.txt", "summary.json", "checkpoints")
    resume = ["run.yaml", "stop.epochs=3", "--resume", "runs/run"]
    whole.mkdir()
    write_run(whole, **SHORT)
    ((code, said),) = train_many([(whole, ["run.yaml"])])
    assert code == 0, said
    for file in files:
        path = shutil.copytree(whole, folder / file, symlinks=True) / "runs/run" / file
        if path.is_dir():
            shutil.rmtree(path)
            path.write_text("")
        else:
            path.unlink()
            path.mkdir()
            (path / "in the way").write_text("")
    with tiny.unchanged(whole):
        *found, taken = train_many([*((folder / file, resume) for file in files), (whole, ["run.yaml"])])
    for code, said in found:
        assert code in (4, 9)
        assert "Traceback" not in said
        assert said.splitlines()[-1].startswith("error: runs/run")
    expected = "error: name: runs/run exists already; continue it with --resume runs/run, or choose another name\n"
    assert taken == (1, expected)


# Training that diverges


@pytest.mark.parametrize("on_nan", ["stop", "reset"])
def test_a_rate_that_makes_the_loss_nan(folder: Path, on_nan):
    settings = ["update.lr=1e25", f"on_nan={on_nan}", "stop.epochs=10", "checkpoint.every=1 iterations"]
    done = train(folder, "run.yaml", *settings)
    assert done.returncode == 6
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: iteration ")
    assert "; lower update.lr (now 1e+25)" in last
    kept = folder / last.rpartition("the last checkpoint is ")[2]
    assert (kept / "checkpoint.json").is_file()
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert not (folder / "runs/run/summary.json").exists()


# Several ranks


@needs_mpi
def test_ranks_speak_once(whole: Path):
    """What is wrong on all ranks is said by one of them."""
    with tiny.unchanged(whole):
        done = train(whole, "run.yaml", "batch_size=0", ranks=RANKS)
    assert done.returncode == 2
    assert done.stderr.count("error: batch_size: must be an integer of at least 1, got 0") == 1


@needs_mpi
def test_one_rank_that_fails_ends_all(folder: Path):
    """A damaged record reaches one rank only; the others wait for it in an all-reduce."""
    path = shard(folder)
    flip(path, HEADER.size + 33 * 36 + 7)
    done = train(folder, "run.yaml", "stop.epochs=1000000", "data.pipeline=host", ranks=RANKS)
    assert done.returncode == 3
    said = [line for line in done.stderr.splitlines() if "record 33: checksum is 0x" in line]
    assert len(said) == 1
    assert said[0].startswith("rank ")
    assert "Traceback" not in done.stderr
    assert not (folder / "runs/run/summary.json").exists()


@needs_mpi
def test_a_full_disk_of_one_rank(folder: Path):
    """Every rank writes its own file: where one can't, all say so and nothing half-written stays."""
    program = (
        "import os, resource, sys\n"
        "from mpibow.comm.launch import find_launcher\n"
        "if find_launcher(os.environ).rank == 1: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))\n"
        "sys.argv = ['train', 'run.yaml', 'model.hidden=[300]']\n"
        "from mpibow.train import main\n"
        "main()\n"
    )
    (folder / "limited.py").write_text(program)
    done = mpirun(RANKS, "limited.py", cwd=folder)
    assert done.returncode == 4
    assert "error: rank 1: runs/run/checkpoints: a checkpoint cannot be written: " in done.stderr
    assert done.stderr.count("a checkpoint cannot be written") == 1
    assert "Traceback" not in done.stderr
    assert list((folder / "runs/run/checkpoints").iterdir()) == []
