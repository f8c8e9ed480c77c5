"""Commands whose reader leaves, as `| head` does: they go on to their end, and complain of nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpibow.errors import EXIT_INTERRUPTED
from tests.launching import RANKS, ROOT, launcher, needs_mpi, run
from tests.run.processes import LIMIT, OPEN_MPI, write_run

RUN = ("-m", "mpibow.train", "run.yaml", "stop.iterations=200", "log.every=50")
SCRIPT = """
import mpibow
mpibow.fit(
    lambda image: mpibow.dense(mpibow.flatten(image), 3), "data/train", batch_size=3,
    stop={"epochs": None, "iterations": 200}, checkpoint={"every": "10 iterations"},
)
"""


def left(*arguments: str, cwd: Path, lines: int, ranks: int = 1) -> tuple[int, str]:
    """The exit code of `python arguments 2>&1 | head -n lines`, its first, and what was read."""
    program = [] if ranks == 1 else [str(launcher()), "-n", str(ranks)]
    child = subprocess.Popen(
        [*program, sys.executable, *arguments],
        cwd=cwd, env={**os.environ, **OPEN_MPI, "PYTHONPATH": str(ROOT)}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    read = "".join(child.stdout.readline() for _ in range(lines))
    child.stdout.close()
    return child.wait(LIMIT), read


def check_whole(folder: Path) -> None:
    """Its only run came to its end, and the log has it all."""
    (run,) = (folder / "runs").iterdir()
    assert json.loads((run / "summary.json").read_text())["stopped"] == "stop.iterations 200"
    log = (run / "log.txt").read_text().splitlines()
    assert log[-1].endswith(f"run directory {run.relative_to(folder)}")
    assert (run / "checkpoints/iteration-0000000200").exists()


@pytest.mark.parametrize("how", ["train", "unbuffered", "fit"])
def test_a_run_goes_on(tmp_path, how):
    write_run(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)
    arguments = {"train": RUN, "unbuffered": ("-u", *RUN), "fit": ("mine.py",)}[how]
    code, read = left(*arguments, cwd=tmp_path, lines=1)
    assert (code, read.count("\n")) == (0, 1)
    check_whole(tmp_path)


@needs_mpi
def test_ranks_go_on(tmp_path):
    write_run(tmp_path)
    code, _ = left(*RUN, cwd=tmp_path, lines=1, ranks=RANKS)
    assert code == 0
    check_whole(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "mpibow.records", "inspect", "data/train"), ("-m", "mpibow.records", "--help"),
        ("-m", "mpibow.train", "run.yaml", "--check"), ("-m", "mpibow.train", "--help"), ("-m", "mpibow.doctor"),
        ("-m", "mpibow.evaluate", "--help"), (str(ROOT / "datasets/tfrecord.py"), "--help"),
    ],
    ids=lambda arguments: " ".join(arguments[-2:]),
)  # fmt: skip
def test_commands_end_quietly(tmp_path, arguments):
    write_run(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)  # all of the output is written to nobody
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, timeout=LIMIT,
        stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert "Error" not in done.stderr
    assert done.returncode == 0


def test_ctrl_c_ends_any_command_without_a_trace():
    text = "import signal; from mpibow.system.streams import as_command; as_command(lambda: signal.raise_signal(2))"
    done = run([sys.executable, "-c", text])
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "interrupted\n")
