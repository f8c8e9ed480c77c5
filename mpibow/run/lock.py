"""The lock of a run directory: one run at a time writes to it, on any file system that its ranks share.

The file `lock` names the host, the process and the start of a run, which touches it every BEAT seconds. It is made
aside, where only one process can, and renamed. Another run takes it over where that process has ended; on another
host, where the file stays untouched for WATCHED seconds. No clocks are compared, but for a lock that is LONG past.
"""

import json
import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from mpibow.errors import OutputError
from mpibow.system import read_file
from mpibow.system.process import begun, namespace, state

from .output import writable

FILE = "lock"
BEAT, WATCHED, LONG = 10.0, 30.0, 600.0  # seconds
LATE = 10.0  # seconds that a shared file system may take to show a file to other nodes
LOOK = 0.05  # seconds between looks at a file


@dataclass(frozen=True)
class Holder:
    """The run that holds a lock. `namespace` and `begun` recognise its process."""

    token: str
    host: str
    pid: int
    since: str
    namespace: str
    begun: str

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}, since {self.since}"

    @property
    def is_visible(self) -> bool:
        """Whether this process could see that one, if it lives."""
        return self.namespace == namespace()

    @property
    def lives(self) -> bool:
        """Whether the visible process has not ended."""
        return bool(state(self.pid)) and begun(self.pid) == self.begun


class Lock:
    """Holds the lock of `folder` from its construction until `close`. Raises OutputError where a run has it."""

    def __init__(self, folder: Path, say: Callable[[str], None] = print):
        self._folder = folder
        self._closed = threading.Event()
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        pid = os.getpid()
        self._own = Holder(uuid4().hex, platform.node(), pid, since, namespace(), begun(pid))
        self.token = self._own.token
        while not self._taken(_free(folder, say)):
            time.sleep(LOOK)
        self._thread = threading.Thread(target=self._live, name="lock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(1.0)  # unless the file system hangs
        with suppress(OSError):
            if self._held():
                (self._folder / FILE).unlink()

    def _taken(self, before: Holder | None) -> bool:
        """Takes the lock if `before` still has it; False where another process does so at this moment."""
        aside = self._folder / f".{FILE}"
        with writable(self._folder / FILE):
            try:
                with aside.open("xb") as file:
                    file.write(json.dumps(asdict(self._own)).encode())
                    file.flush()
                    os.fsync(file.fileno())
                if free := holder_of(self._folder) == before:
                    aside.rename(self._folder / FILE)
                else:
                    aside.unlink()
                return free
            except FileExistsError:
                with suppress(OSError):
                    if time.time() - aside.stat().st_mtime > WATCHED:  # of a process that was killed meanwhile
                        aside.unlink()
                return False
            except OSError:
                with suppress(OSError):
                    aside.unlink()
                raise

    def _live(self) -> None:
        while not self._closed.wait(BEAT):
            with suppress(OSError):
                if self._held():
                    os.utime(self._folder / FILE)

    def _held(self) -> bool:
        return holder_of(self._folder) == self._own


def holder_of(folder: Path) -> Holder | None:
    """The run that has the lock of `folder`, None where there is none."""
    try:
        return Holder(**json.loads(read_file(folder / FILE)))
    except (OSError, ValueError, TypeError):
        return None


def check(folder: Path, token: str) -> None:
    """Raises OutputError where another run has taken over the lock that `token` was given for."""
    holder = holder_of(folder)
    if holder is not None and holder.token != token:
        raise OutputError(f"{folder}: was taken over by {holder}: this run stood still for too long, and ends")


def sees(folder: Path, token: str) -> bool:
    """Whether the lock that `token` was given for is in what this process calls `folder`."""
    end = time.monotonic() + LATE
    while (holder := holder_of(folder)) is None or holder.token != token:
        if time.monotonic() > end:
            return False
        time.sleep(LOOK)
    return True


def _free(folder: Path, say: Callable[[str], None]) -> Holder | None:
    """The run whose lock may be taken over, None where there is none. Raises OutputError where that run goes on."""
    holder = holder_of(folder)
    touched = _touched(folder)
    if holder is None or (holder.is_visible and not holder.lives):
        return holder
    if not holder.is_visible and time.time() - touched <= LONG:
        say(f"{folder}: locked by {holder}: watching for {WATCHED:g} s whether it goes on")
        end = time.monotonic() + WATCHED
        while _touched(folder) == touched and time.monotonic() < end:
            time.sleep(LOOK)
    if not holder.is_visible and _touched(folder) == touched:
        return holder
    raise OutputError(
        f"{folder}: is in use by {holder}; wait for its end or stop it, or choose another run directory with name=NAME"
    )


def _touched(folder: Path) -> float:
    """When the lock was touched last; it is opened, as network file systems look at their server only then."""
    with suppress(OSError), (folder / FILE).open("rb") as file:
        return os.fstat(file.fileno()).st_mtime
    return 0.0
