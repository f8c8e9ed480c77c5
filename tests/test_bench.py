"""The benchmarks' command: that it measures, and what it prints. Never how fast."""

import json
import subprocess
import time
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpibow.bench import is_over, main, memory_text, profile_text
from mpibow.comm.communicator import Communicator, Single
from mpibow.kernels import find_kernels
from tests.comm.threads import on_threads
from tests.launching import in_turn, mpirun, needs_mpi

FASTEST = find_kernels("auto", "float32", None)[0].name


def bench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command, in this process."""
    out, err = StringIO(), StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(list(arguments))
    return subprocess.CompletedProcess(arguments, end.value.code or 0, out.getvalue(), err.getvalue())


def test_train_prints_one_json_line(tmp_path):
    done = bench("train", "convnet", "--batch-size", "4", "--learners", "2", "--seconds", "0.3", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    step = found["seconds_per_iteration"]
    assert 0 < step["p10"] <= step["median"] <= step["p90"]
    assert found["images_per_second"] > 0
    assert (found["batch_size"], found["learners"], found["ranks"]) == (4, [2], 1)
    assert (found["device"], found["kernels"], found["rule"]) == ("cpu", FASTEST, "sma")
    assert found["versions"]["numpy"]
    assert not list(tmp_path.iterdir())  # it leaves nothing behind


@needs_mpi
def test_train_is_for_all_ranks_together(tmp_path):
    done = mpirun(2, "-m", "mpibow.bench", "train", "logistic", "--seconds", "0.3", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip())
    assert (found["learners"], found["ranks"]) == ([1, 1], 2)


def test_one_rank_asks_nobody_whether_the_time_is_up():
    """It would wait for the iteration that it has just enqueued on a GPU."""
    session = SimpleNamespace(synchroniser=SimpleNamespace(call=lambda _: pytest.fail("it waits")))
    now = time.perf_counter()
    assert [is_over(session, Single(), now + 1000, done) for done in range(21)] == [False] * 21
    assert [is_over(session, Single(), now - 1, done) for done in range(21)] == [False] + [True] * 20  # one at least


def test_several_ranks_go_by_the_clock_of_rank_0_every_tenth_iteration():
    now = time.perf_counter()

    def body(comm: Communicator) -> tuple[list[int], list[int]]:
        asked, over = [], []
        for done in range(31):

            def call(function, done: int = done) -> None:
                asked.append(done)
                function(comm)

            session = SimpleNamespace(synchroniser=SimpleNamespace(call=call))
            if is_over(session, comm, now + (1000 if done < 20 or comm.rank else -1), done):
                over.append(done)
        return asked, over

    assert on_threads(2, body) == [([10, 20, 30], [20, 30])] * 2


def test_other_settings_and_shapes(tmp_path):
    arguments = ("train", "mlp", "--shape", "3,4,4", "--classes", "7", "--seconds", "0.2", "--json", "rule.name=ssgd")
    done = bench(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rule"] == "ssgd"


def test_ratings(tmp_path):
    done = bench("train", "matrix_factorisation", "--batch-size", "32", "--seconds", "0.2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == "matrix_factorisation"


def test_memory(tmp_path):
    done = bench("memory", "lenet", "--batch-size", "16", "--json", "device=numpy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["largest_alive"] <= found["arena"] <= 1.05 * found["largest_alive"]
    assert found["weights"] == 4 * 1_111_952  # with its padding
    text = bench("memory", "lenet", "--batch-size", "16", "device=numpy", cwd=tmp_path).stdout
    assert text == memory_text(found) + "\n"


def test_the_figures_of_memory(tmp_path):
    """By hand: float32 of a batch of 4 through 784, 256 and 10; what is alive is counted in whole cache lines."""
    done = bench("memory", "mlp", "--batch-size", "4", "--json", "device=numpy", cwd=tmp_path)
    found = json.loads(done.stdout)
    pixels, hidden, logits, samples = 4 * 4 * 784, 4 * 4 * 256, 4 * 4 * 10, 4 * 4
    activations = pixels + 2 * hidden + logits + 2 * samples  # the loss, and whether it is a hit
    gradients = 2 * hidden + logits
    shown = 192 + 2 * 64  # logits, loss and hits, until the end
    mask, loss, accuracy = 4 * 256, logits + 5 * samples, 2 * samples  # what kernels save, and their scratch
    alive = pixels + hidden + 2 * hidden + mask + shown  # as relu goes back: its output, and both gradients
    figures = ("arena", "activations", "largest_alive", "tensors_written", "buffers")
    assert [found[key] for key in figures] == [
        alive,
        activations,
        alive,
        activations + gradients,
        mask + loss + accuracy,
    ]


@pytest.mark.skipif(FASTEST != "onednn", reason="NumPy's convolutions keep their columns")
def test_memory_of_a_large_net(tmp_path):
    found = json.loads(bench("memory", "resnet50", "--batch-size", "32", "--json", cwd=tmp_path).stdout)
    assert found["arena"] <= 1.05 * found["largest_alive"]
    assert found["arena"] <= 0.6 * found["tensors_written"]


def test_profile(tmp_path):
    arguments = ("profile", "convnet", "--batch-size", "4", "--seconds", "0.3", "device=numpy")
    done = bench(*arguments, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    in_turn = sum(part["seconds"] for kind, part in found["parts"].items() if kind.endswith(" conv"))
    assert found["convolutions_in_turn"] == pytest.approx(in_turn)
    assert found["parts"]["forward conv"]["count"] == found["parts"]["backward conv"]["count"] == 2
    assert found["plan"] == pytest.approx(sum(part["seconds"] for part in found["parts"].values()))
    assert found["ratio_in_turn"] == pytest.approx(found["iteration"] / in_turn)
    assert found["convolutions_alone"] > 0
    assert profile_text(found).startswith("convnet, batch 4, 1 learner: ")
    assert found["ratio_alone"] == pytest.approx(found["iteration"] / found["convolutions_alone"])
    assert sum(found["beyond"].values()) == pytest.approx(found["iteration"] - found["convolutions_alone"])
    assert found["beyond"]["all other operators"] == pytest.approx(found["plan"] - in_turn)
    assert found["beyond"]["update, averaging, data, loop"] == pytest.approx(found["iteration"] - found["plan"])


def test_profile_without_convolutions(tmp_path):
    done = bench("profile", "logistic", "--batch-size", "4", "--seconds", "0.1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["convolutions_alone"], found["ratio_alone"], found["ratio_in_turn"]) == (0, None, None)


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
