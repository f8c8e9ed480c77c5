"""A checkpoint evaluated on a simulated GPU: the host's numbers, in the run's precision, and only where asked."""

from dataclasses import replace
from pathlib import Path

import pytest

from mpibow.comm import Communicator, Single
from mpibow.config import Config, load
from mpibow.errors import ConfigError
from mpibow.evaluate import evaluate
from mpibow.job import open_job
from mpibow.run.evaluate import Evaluation
from mpibow.train import train
from tests.comm.threads import on_threads
from tests.cuda.kernels.host import needs_compiler
from tests.cuda.simulated.gpu import simulated
from tests.cuda.simulated.test_auto import rooms
from tests.refusals import refuses
from tests.run.processes import write_run

pytestmark = needs_compiler


@pytest.fixture
def trained(here: Path) -> Path:
    write_run(here, stop={"epochs": 1}, evaluate={"every": 1}, device="numpy")
    train(open_job(load("run.yaml")), Single())
    return Path("runs/run")


def found(config: Config, comm: Communicator) -> tuple:
    """A GPU that is simulated, in the precision that is asked for."""
    assert config.device == "cuda"
    return simulated(comm.rank, config.precision, shared=comm.size > 1), ""


def never(config: Config, comm: Communicator) -> tuple:
    raise AssertionError("nobody asked for a GPU")


@pytest.mark.parametrize("ranks", [1, 2])
def test_on_a_gpu_where_asked(trained: Path, ranks):
    host = evaluate(trained, "data/test", Single(), batch_size=7, rooms=rooms(never))
    table = trained / "gpu.csv"

    def body(comm: Communicator) -> Evaluation:
        return evaluate(
            trained, "data/test", comm, batch_size=7, top_k=2, predictions=table, device="cuda", rooms=rooms(found)
        )

    for gpu in on_threads(ranks, body):
        assert gpu.loss == pytest.approx(host.loss, rel=1e-5)
        assert (gpu.accuracy, gpu.count) == (host.accuracy, host.count)
    evaluate(trained, "data/test", Single(), predictions=trained / "host.csv", device="numpy", rooms=rooms(never))
    rows, expected = (path.read_text().splitlines() for path in (table, trained / "host.csv"))
    assert [row.split(",")[:3] for row in rows] == [row.split(",")[:3] for row in expected]


def test_float64_is_no_gpus(here: Path):
    write_run(here, stop={"epochs": 0.5}, evaluate={"every": 1}, device="numpy", precision="float64")
    train(open_job(load("run.yaml")), Single())
    problem = "precision: a GPU computes in float32, tf32, bf16, fp16, got float64"
    with refuses(f"device cuda: {problem}; set device to auto", ConfigError):
        evaluate(Path("runs/run"), "data/test", Single(), device="cuda")


def test_a_run_in_16_bits_is_evaluated_on_the_host(here: Path):
    write_run(here, stop={"epochs": 2}, evaluate={"every": 1}, device="cuda", precision="bf16")
    summary = train(replace(open_job(load("run.yaml")), device=simulated(0, "bf16")), Single()).summary
    host = evaluate(Path("runs/run"), "data/test", Single(), rooms=rooms(never))
    assert host.loss == pytest.approx(summary.test_loss, rel=0.02)
