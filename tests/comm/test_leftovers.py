"""What a killed mpirun leaves on its node goes at the next start; what a living job has stays."""

import mmap
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mpibow.comm import leftovers
from mpibow.comm.leftovers import ALL_PROCESSES, sweep
from tests.launching import OPEN_MPI, launcher, needs_mpi

sees_all = pytest.mark.skipif(
    os.readlink("/proc/self/ns/pid") != ALL_PROCESSES, reason="a PID namespace, where processes are hidden"
)
MEET = "from mpi4py import MPI; MPI.COMM_WORLD.allgather(0); print('met', flush=True); import time; time.sleep(900)"


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Shared memory and a folder of temporary files, with what a dead job left."""
    memory, folders = tmp_path / "shm", tmp_path / "tmp"
    memory.mkdir()
    session = folders / "ompi.4194305"  # above Linux's largest PID
    (session / "1/0").mkdir(parents=True)
    (session / f"pmix.{leftovers.socket.gethostname()}.tool.4194305").write_text("")
    for name in ("sm_segment.vm.0.beef0001.0", "sm_segment.a.b.0.beef0001.12", "mpibow-x_1", "sm_segment", "other"):
        (memory / name).write_bytes(bytes(8192))
    return memory, folders


def names(places: tuple[Path, Path]) -> list[str]:
    return sorted(path.name for place in places for path in place.iterdir())


@sees_all
def test_what_nobody_uses_goes(places: tuple[Path, Path]):
    memory, folders = places
    assert sweep(memory, folders) == ""  # a minute has not passed
    assert len(names(places)) == 6
    assert sweep(memory, folders, age=0) == (
        f"removed 4 file(s) or folder(s) of killed jobs in {memory} and {folders}, 0 MiB"
    )
    assert names(places) == ["other", "sm_segment"]
    assert sweep(memory, folders, age=0) == ""


@sees_all
@pytest.mark.parametrize("how", ["mapped", "open", "folder", "pid", "host", "user", "link", "hidden", "unseen"])
def test_what_may_be_used_stays(places: tuple[Path, Path], tmp_path, monkeypatch, how):
    memory, folders = places
    session, segment = folders / "ompi.4194305", memory / "sm_segment.vm.0.beef0001.0"
    held, stays = None, segment.name
    if how in ("mapped", "open"):
        held = segment.open("rb+")
    if how == "mapped" and held is not None:
        held, mapped = mmap.mmap(held.fileno(), 0), held
        mapped.close()
    if how == "folder":
        held, stays = (session / "1/job").open("wb"), session.name
    if how == "pid":
        session, stays = session.rename(folders / f"ompi.{os.getpid()}"), f"ompi.{os.getpid()}"
    if how == "host":
        monkeypatch.setattr(leftovers.socket, "gethostname", lambda: "elsewhere")
        stays = session.name
    if how == "user":
        monkeypatch.setattr(leftovers.os, "getuid", lambda: 4711)
    if how == "link":
        segment.rename(tmp_path / "target")
        segment.symlink_to(tmp_path / "target")
    if how == "hidden":
        monkeypatch.setattr(leftovers, "ALL_PROCESSES", "pid:[1]")
    if how == "unseen":

        def refused(process: Path) -> set[str]:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(leftovers, "_used_by", refused)
    sweep(memory, folders, age=0)
    assert stays in names(places)
    if held is not None:
        held.close()


@sees_all
@needs_mpi
@pytest.mark.parametrize("killed", [True, False])
def test_a_real_job(tmp_path, killed):
    """Killed with its ranks, nothing of it stays; alive, nothing of it goes."""
    memory, folders = tmp_path / "shm", tmp_path / "tmp"
    memory.mkdir()
    folders.mkdir()
    places = {"TMPDIR": str(folders), "OMPI_MCA_btl_sm_backing_directory": str(memory)}
    command = [str(launcher()), "-n", "2", sys.executable, "-c", MEET]
    job = psutil.Popen(
        command, env={**os.environ, **OPEN_MPI, **places}, stdout=subprocess.PIPE, start_new_session=True
    )
    processes = [job]
    try:
        assert [job.stdout.readline() for _ in range(2)] == [b"met\n"] * 2
        processes += job.children(recursive=True)
        if not (left := names((memory, folders))):
            pytest.skip("this MPI keeps nothing there")
        if killed:
            for process in processes:
                process.kill()
            psutil.wait_procs(processes, timeout=720)
            assert names((memory, folders)) == left
        sweep(memory, folders, age=0)
        assert [name for name in names((memory, folders)) if name in left] == ([] if killed else left)
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        job.communicate()
