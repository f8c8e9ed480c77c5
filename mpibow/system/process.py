"""Processes, the signals that end them, and the kernel that runs them: one is recognised by another, also later."""

import ctypes
import os
import platform
import signal
import struct
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path


def kernel() -> str:
    """An identifier that all processes of one running kernel share."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8")
    return platform.node()


def namespace() -> str:
    """An identifier that processes share which have the same numbers for processes."""
    with suppress(OSError):
        return f"{kernel()}{os.readlink('/proc/self/ns/pid')}"
    return kernel()


def state(pid: int) -> str:
    """The letter of a process's state, as T for stopped; '' if it has ended."""
    if fields := _stat(pid):
        return "" if fields[0] in (b"Z", b"X") else fields[0].decode()
    if Path("/proc/self/stat").exists():
        return ""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "S"
    return ""


def begun(pid: int) -> str:
    """When a process began, in ticks of its kernel, as numbers are used again; '' where that is unknown."""
    fields = _stat(pid)
    return fields[19].decode() if fields else ""


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from its state on, [] where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return []


KEEP_POLICY, SLICE = 8, 100_000  # a flag; nanoseconds
ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)


def run_soon() -> None:
    """Asks Linux, 6.12 or later, for short slices for this thread: once it wakes up it runs before one that computes.

    See sched_setattr(2). Nothing else changes; other systems ignore it or refuse it.
    """
    call = {"x86_64": 314, "aarch64": 274}.get(platform.machine())
    if sys.platform == "linux" and call is not None:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        ctypes.CDLL(None).syscall(call, 0, struct.pack("IIQiIQQQ", 48, 0, KEEP_POLICY, nice, 0, SLICE, 0, 0), 0)


@cache
def address(function: str, library: str | None = None) -> int:
    """The address of a C function: of the library in this file, or of one that the process has loaded."""
    return ctypes.cast(getattr(ctypes.CDLL(library), function), ctypes.c_void_p).value or 0
