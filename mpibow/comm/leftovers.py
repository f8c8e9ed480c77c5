"""Removes the leftovers on a node of jobs whose launcher was killed: shared memory, and Open MPI's session folder.

Nothing else removes them: 16 MiB of memory for every rank. A leftover goes only if it is this user's, is older than a
minute, and no living process maps it, has it open, or gave it its name.
"""

import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mpibow.system.process import state

AGE = 60.0  # seconds: a job that begins makes a file before it maps it
MEMORY = re.compile(r"sm_segment\..+\.(\d+)\.[0-9a-f]+\.\d+|mpibow-\w+")  # of Open MPI, and of comm.shared
SESSION = re.compile(r"ompi\.(\d+)")  # .PID of mpirun
ALL_PROCESSES = "pid:[4026531836]"  # Linux's first PID namespace: in another one processes are hidden


def sweep(memory: Path = Path("/dev/shm"), folders: Path | None = None, age: float = AGE) -> str:
    """Removes dead jobs' leftovers in `memory` and `folders`; returns a message, '' if there are none."""
    folders = Path(os.environ.get("PMIX_SYSTEM_TMPDIR", tempfile.gettempdir())) if folders is None else folders
    found = [path for path in _named(memory, MEMORY, age) if path.is_file()]
    for path in _named(folders, SESSION, age):
        pid = path.name.removeprefix("ompi.")
        # Left by an mpirun of this node that has ended.
        if (path / f"pmix.{socket.gethostname()}.tool.{pid}").exists() and not Path(f"/proc/{pid}").exists():
            found.append(path)
    if not found or (used := _used()) is None:
        return ""
    gone = 0
    size = 0
    for path in found:
        if any(name == str(path) or name.startswith(f"{path}/") for name in used):
            continue
        with suppress(OSError):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                size += 512 * path.lstat().st_blocks
                path.unlink()
            gone += 1
    if not gone:
        return ""
    return f"removed {gone} file(s) or folder(s) of killed jobs in {memory} and {folders}, {size >> 20} MiB"


def _named(place: Path, pattern: re.Pattern[str], age: float) -> Iterator[Path]:
    """This user's files and folders in `place` with such names that are old enough, but no links."""
    with suppress(OSError):
        for entry in os.scandir(place):
            if not pattern.fullmatch(entry.name):
                continue
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                old = time.time() - max(found.st_mtime, found.st_ctime) >= age
                if old and found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode):
                    yield Path(entry.path)


def _used() -> set[str] | None:
    """The files that living processes map or have open; None if that is unknown for a process of this user."""
    try:
        if os.readlink("/proc/self/ns/pid") != ALL_PROCESSES:
            return None
        used = set()
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and process.name != "1":  # init, which may hide itself
                try:
                    used |= _used_by(process)
                except PermissionError:
                    if state(int(process.name)):  # one that has ended and is not yet forgotten uses nothing
                        raise
        return used
    except OSError:
        return None


def _used_by(process: Path) -> set[str]:
    """The files that `process` uses, none if it is another user's. Raises PermissionError if it is unreadable."""
    used = set[str]()
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        owner = re.search(r"^Uid:\s+(\d+)", (process / "status").read_text("utf-8", "replace"), re.MULTILINE)
        if owner and os.getuid() not in (0, int(owner[1])):
            return used
        for line in (process / "maps").read_text("utf-8", "surrogateescape").splitlines():
            if "/" in line:
                used.add(line[line.index("/") :])
        for handle in (process / "fd").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                used.add(os.readlink(handle))
    return used
