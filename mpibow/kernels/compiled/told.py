"""Reports that numba compiles, which takes seconds, for what is new to a machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from numba.core import event

from mpibow.kernels.cache import cache_folder
from mpibow.kernels.compiled.code_cache import CodeCache, release

PASS = "numba:run_pass"  # an event of numba's compiler; functions loaded from disk go through no pass
LAST = "native_lowering"  # the pass that makes a function's code
TITLE = "compiling kernels for this machine"


class Compiling(event.Listener):  # type: ignore[misc]
    """A line that counts on a terminal, else one line when the first function is compiled; `note` is for the log."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._began, self._shown, self.functions = out, time.perf_counter(), False, 0

    def on_start(self, event: Any) -> None:
        if not self._shown:
            self._shown = True
            self._write("" if self._out.isatty() else f"{TITLE}: 5 to 30 seconds\n")

    def on_end(self, event: Any) -> None:
        if event.data["name"].startswith(LAST):
            self.functions += 1
            self._write(f"\r{TITLE}: {self.functions} functions" if self._out.isatty() else "")

    def end(self) -> None:
        """Clears the live line."""
        self._write("\r\x1b[K" if self._shown and self._out.isatty() else "")

    def note(self, functions: int) -> str:
        """A line on so many compiled functions, those of other ranks included; '' if all were on disk."""
        if not functions:
            return ""
        end = "the next run reuses them"
        if CodeCache.lost:
            end = f"{cache_folder()} cannot be written, so every run does; XDG_CACHE_HOME=DIR names another place"
        seconds = time.perf_counter() - self._began
        return f"compiled {functions} functions for this machine in {seconds:.0f} s; {end}"

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()


@contextmanager
def compiling(out: TextIO | None = None) -> Iterator[Compiling]:
    """Reports the functions that are compiled in this context."""
    watch = Compiling(out or sys.stderr)
    with event.install_listener(PASS, watch):
        try:
            yield watch
        finally:
            watch.end()
            release({*CodeCache.locked})  # of what failed
