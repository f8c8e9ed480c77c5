"""Several ranks: on one GPU over MPI and through the host, on a GPU each over NCCL, all with the same centre."""

from pathlib import Path

import pytest

from mpibow.comm import Single
from mpibow.cuda.device.cupy_driver import load_cupy
from mpibow.cuda.exchange.nccl import open_nccl
from mpibow.run.checkpoint import read_arrays
from tests.gpu import opened
from tests.gpu.transports import check
from tests.launching import mpirun, needs_mpi, well
from tests.run import tiny
from tests.run.processes import write_run

pytestmark = opened.needs_gpu(pytest.mark.timeout(250))
GPUS = opened.how_many()
ITERATIONS = 60
needs_two = pytest.mark.skipif(GPUS < 2, reason=f"needs two GPUs, {GPUS} here: not run between GPUs")


def trained(folder: Path, ranks: int, **settings) -> dict:
    """The centre after so many iterations of ranks in processes of their own."""
    folder.mkdir()
    told = {"stop": {"epochs": None, "iterations": ITERATIONS}, "checkpoint": {"every": f"{ITERATIONS} iterations"}}
    write_run(folder, **opened.on_gpu(precision="float32", **told, **settings))
    well(mpirun(ranks, "-m", "mpibow.train", "run.yaml", cwd=folder, timeout=120))
    return read_arrays(folder / f"runs/run/checkpoints/iteration-{ITERATIONS:010d}", "centre")


def test_nccl_alone():
    """A communicator of one rank: what it is told, NCCL takes; sums are what they were."""
    way = open_nccl(Single(), opened.device().driver.stream())
    check(way, load_cupy())
    way.close()


def ways(share: str, *names: str, ranks: int) -> None:
    done = well(mpirun(ranks, "-m", "tests.gpu.transports", share, *names, timeout=200))
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [*names]


@needs_mpi
def test_ways_of_two_ranks_on_one_gpu():
    ways("1", "staged", "mpi", "auto", ranks=2)


@needs_mpi
@pytest.mark.skipif(GPUS != 1, reason=f"{GPUS} GPUs are visible: two ranks take one each")
def test_two_ranks_on_one_gpu_that_they_did_not_ask_to_share(tmp_path):
    write_run(tmp_path, **opened.on_gpu())
    done = mpirun(2, "-m", "mpibow.train", "run.yaml", cwd=tmp_path, timeout=120)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "ranks 0 and 1 on " in said
    assert f" all compute on {opened.device().gpu}: start one rank a GPU, let each see its own " in said
    assert "or set share_gpu=true: they average by MPI" in said


@needs_mpi
def test_nccl_takes_no_ranks_that_share(tmp_path):
    write_run(tmp_path, **opened.on_gpu(transport="nccl", share_gpu=True))
    done = mpirun(2 * GPUS, "-m", "mpibow.train", "run.yaml", cwd=tmp_path, timeout=120)
    assert done.returncode != 0
    said = "transport=nccl: ranks share a GPU, and NCCL allows one rank per GPU: transport=auto"
    assert said in " ".join(done.stderr.split())


@needs_mpi
@needs_two
@pytest.mark.parametrize("ranks", sorted({2, max(GPUS, 2)}))
def test_ways_between_gpus(ranks):
    ways("0", "nccl", "staged", "mpi", "auto", ranks=ranks)


@needs_mpi
@pytest.mark.parametrize("share_gpu", [True, pytest.param(False, marks=needs_two)])
@pytest.mark.parametrize("rule", ["auto", "crossbow", "ssgd"])
def test_ranks(tmp_path, rule, share_gpu):
    """Each way repeats its bits, and all come to the centre of one rank with all learners."""
    settings = {"rule": tiny.RULES[rule], "learners": 2, "share_gpu": share_gpu}
    one = trained(tmp_path / "one", 1, rule=tiny.RULES[rule], learners=4)
    for way in ("mpi", "staged") if share_gpu else ("nccl", "mpi", "staged"):
        first, again = (trained(tmp_path / f"{way} {time}", 2, **settings, transport=way) for time in (1, 2))
        assert tiny.same_bits(first, again), way
        assert tiny.distance(first, one) < 1e-3, way
