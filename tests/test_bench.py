"""The benchmarks' command: that it measures, and what it prints. Never how fast."""

import json
import subprocess
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpibow.bench import main, next_look, profile_text
from mpibow.comm import Communicator, Single
from mpibow.kernels import find_kernels
from tests.comm.threads import on_threads
from tests.launching import in_turn, mpirun, needs_mpi, well

FASTEST = find_kernels("auto", "float32", None)[0].name


def bench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command, in this process."""
    out, err = StringIO(), StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(list(arguments))
    return subprocess.CompletedProcess(arguments, end.value.code or 0, out.getvalue(), err.getvalue())


def measured(*arguments: str, cwd: Path) -> dict[str, Any]:
    """What it prints as JSON, in one line."""
    (line,) = well(bench(*arguments, "--json", cwd=cwd)).stdout.splitlines()
    return json.loads(line)


def test_train_prints_one_json_line(tmp_path):
    found = measured("train", "convnet", "--batch-size", "4", "--learners", "2", "--seconds", "0.3", cwd=tmp_path)
    step = found["seconds_per_iteration"]
    assert 0 < step["p10"] <= step["median"] <= step["p90"]
    assert found["images_per_second"] > 0
    assert (found["batch_size"], found["learners"], found["ranks"]) == (4, [2], 1)
    assert (found["device"], found["kernels"], found["rule"]) == ("cpu", FASTEST, "sma")
    assert found["versions"]["numpy"]
    assert not list(tmp_path.iterdir())  # it leaves nothing behind


@needs_mpi
def test_train_is_for_all_ranks_together(tmp_path):
    found = json.loads(
        well(
            mpirun(2, "-m", "mpibow.bench", "train", "logistic", "--seconds", "0.3", "--json", cwd=tmp_path)
        ).stdout.strip()
    )
    assert (found["learners"], found["ranks"]) == ([1, 1], 2)


def test_one_rank_asks_nobody_whether_the_time_is_up():
    """It would wait for the iteration that it has just enqueued on a GPU."""
    session = SimpleNamespace(synchroniser=SimpleNamespace(call=lambda _: pytest.fail("it waits")))
    now = time.perf_counter()
    assert [next_look(session, Single(), now, seconds, 7) for seconds in (1000, 0)] == [8, 0]


def test_several_ranks_go_by_the_clock_of_rank_0_and_look_at_it_seldom():
    """It has made 100 iterations in 10 seconds: twice as many more of 100, five of 10.5; one at least."""
    now = time.perf_counter()

    def body(comm: Communicator) -> list[int]:
        session = SimpleNamespace(synchroniser=SimpleNamespace(call=lambda function: function(comm)))
        begin = now - (2 if comm.rank else 10)
        return [next_look(session, comm, begin, seconds, 100) for seconds in (100, 10.59, 10.1, 9)]

    assert on_threads(2, body) == [[300, 105, 101, 0]] * 2


def test_other_settings_and_shapes(tmp_path):
    arguments = ("train", "mlp", "--shape", "3,4,4", "--classes", "7", "--seconds", "0.2", "rule.name=ssgd")
    assert measured(*arguments, cwd=tmp_path)["rule"] == "ssgd"


def test_ratings(tmp_path):
    found = measured("train", "matrix_factorisation", "--batch-size", "32", "--seconds", "0.2", cwd=tmp_path)
    assert found["model"] == "matrix_factorisation"


def test_profile(tmp_path):
    found = measured("profile", "convnet", "--batch-size", "4", "--seconds", "0.3", "device=numpy", cwd=tmp_path)
    in_turn = sum(part["seconds"] for kind, part in found["parts"].items() if kind.endswith(" conv"))
    assert found["convolutions_in_turn"] == pytest.approx(in_turn)
    assert found["parts"]["forward conv"]["count"] == found["parts"]["backward conv"]["count"] == 2
    assert found["plan"] == pytest.approx(sum(part["seconds"] for part in found["parts"].values()))
    assert found["convolutions_alone"] > 0
    assert profile_text(found).startswith("convnet, batch 4, 1 learner: ")
    assert sum(part["operations"] for part in found["parts"].values()) == found["operations"]
    assert all(part["bytes"] > 0 for part in found["parts"].values())
    assert min(found["roofline"].values()) > 1e8


def test_rates_of_an_operator():
    """1 GFLOP and 2 GB in half a second, where a core can do 4 and 16 in one."""
    part = {"count": 1, "seconds": 0.5, "operations": 1e9, "bytes": 2e9}
    found = {"model": "a", "batch_size": 2, "iteration": 1.0, "plan": 0.5, "parts": {"forward conv": part}}
    text = profile_text({**found, "roofline": {"operations": 4e9, "bytes": 16e9}, "convolutions_alone": 0.25})
    assert text.splitlines()[1].split() == ["forward", "conv", "1", "500.000", "ms", "50.0%", "2.0", "4.0", "50%"]


def test_profile_without_convolutions(tmp_path):
    found = measured("profile", "logistic", "--batch-size", "4", "--seconds", "0.1", cwd=tmp_path)
    assert found["convolutions_alone"] == 0


def test_what_is_refused(tmp_path):
    refused = (
        (["train", "convnet", "--seconds", "0"], "error: --seconds: must be above 0, got 0\n"),
        (
            ["train", "matrix_factorisation", "--classes", "5"],
            "error: --shape, --classes: matrix_factorisation has neither; leave them out\n",
        ),
        (["train", "convnet", "--shape", "x"], "error: --shape: must be channels,height,width, got 'x'\n"),
    )
    found = in_turn("mpibow.bench", *((tmp_path, arguments) for arguments, _ in refused))
    assert [(done.returncode, done.stderr) for done in found] == [(2, message) for _, message in refused]
