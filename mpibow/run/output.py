"""The files and the live line of a run: metrics.jsonl, log.txt and its progress on a terminal."""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from io import FileIO
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from mpibow.errors import OutputError
from mpibow.system import is_full, nulled, reason, refusal
from mpibow.system.streams import is_live

from .directory import ELSEWHERE

PLAIN_EVERY = 10.0  # seconds between lines where the output is no terminal
FOREVER = 1e9  # seconds; the end of a longer run is not shown
writable = partial(refusal, OutputError, remedy=ELSEWHERE)  # a file of the run directory


class EventFile:
    """Appends to `path`; bytes behind the first `keep` are cut off: a run wrote them after its last checkpoint.

    An incomplete last line is removed, as it would spoil the next one, too. A full disk ends no run (`Lines`, whose
    warnings go to `warn`). Raises OutputError where the file cannot be opened, or is gone later: the results of a run
    without its directory would be lost.
    """

    def __init__(self, path: Path, keep: int = 0, warn: Callable[[str], None] = print):
        self._path = path
        with writable(path):
            self._file = path.open("a+b", buffering=0)
            size = self._file.tell()
            self._file.seek(0)
            lines = self._file.read(min(keep, size)).rfind(b"\n") + 1
            if lines < size:
                self._file.truncate(lines)
            self._file.seek(lines)  # else `mark` would return the old end
        self._lines = Lines(path, lambda: nullcontext(self._file), warn)

    def add(self, event: str, **fields: object) -> None:
        self._check()
        self._lines.add(json.dumps(nulled({"event": event, "time": round(time.time(), 3), **fields})))

    def mark(self) -> int:
        """Bytes so far, with the lines that wait for the disk."""
        self._check()
        return self._file.tell() + self._lines.waiting

    def close(self) -> None:
        self._lines.close()
        with suppress(OSError):
            self._file.close()

    def _check(self) -> None:
        try:
            gone = not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except (FileNotFoundError, NotADirectoryError):
            gone = True
        except OSError:  # a file system that does not answer: writing shows the error
            gone = False
        if gone:
            raise OutputError(
                f"{self._path}: is gone: the run directory was removed or moved while the run wrote to it; "
                "start the run again, or move the directory back and use --resume"
            )


class Lines:
    """Appends lines to the file `path`, which `opened` gives unbuffered, also where its disk is full for a while.

    Bytes that the system refuses wait for the next line, and are tried again with it; `warn` is called when that
    begins and when it ends.
    """

    def __init__(self, path: Path, opened: Callable[[], AbstractContextManager[FileIO]], warn: Callable[[str], None]):
        self._path = path
        self._opened = opened
        self._warn = warn
        self._bytes = bytearray()
        self._refused = ""
        self._full = False

    @property
    def waiting(self) -> int:
        """Bytes that are not written yet."""
        return len(self._bytes)

    def add(self, line: str) -> None:
        self._bytes += f"{line}\n".encode(errors="backslashreplace")  # a file's name may be no UTF-8
        before = self._refused
        self._write()
        if self._refused and not before:
            self._warn(
                f"warning: {self._path}: cannot be written: {self._refused}; the run goes on and keeps the lines in "
                f"memory{', free some space' * self._full}"
            )
        elif before and not self._refused:
            self._warn(f"{self._path}: can be written again; no line was lost")

    def close(self) -> None:
        """Tries once more."""
        if self._bytes:
            self._write()
        if self._bytes:
            lost = self._bytes.count(b"\n")
            self._warn(f"warning: {self._path}: its last {lost} line(s) are lost: {self._refused}")

    def _write(self) -> None:
        try:
            with self._opened() as file:
                while self._bytes:
                    del self._bytes[: file.write(self._bytes)]
            self._refused = ""
        except OSError as error:
            self._refused = reason(error)
            self._full = is_full(error)


class Line:
    """A tqdm bar on a terminal and in a notebook, else a line every few seconds. Notes also go to log.txt.

    With `quiet` they go there alone; without `log`, on ranks that print nothing, nowhere.
    """

    def __init__(self, log: Path | None, position: int, *, quiet: bool = False):
        self._log = None
        if log is not None:
            with writable(log):
                log.open("ab").close()
            self._log = Lines(log, lambda: log.open("ab", buffering=0), self._say)
        self._quiet = quiet
        self._live = is_live(sys.stderr) and not quiet
        self._bar: tqdm[NoReturn] | None = None
        self._position = position
        self._shown = 0.0

    def note(self, text: str) -> None:
        """A line that stays."""
        self._say(text)
        if self._log is not None:
            self._log.add(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            tqdm.write(text, file=sys.stderr)
            sys.stderr.flush()

    def show(self, samples: int, text: str, speed: float, end: float | None) -> None:
        """Shows progress: samples consumed, the rest as text, samples/s, and the samples at its end if known."""
        if end is not None and end - samples > FOREVER * speed:
            end = None
        if self._live:
            if self._bar is None:
                self._bar = tqdm(initial=self._position, dynamic_ncols=True)
            self._bar.bar_format = "{desc}" if end is None else "{percentage:3.0f}%|{bar:12}| {desc} eta {remaining}"
            self._bar.total = None if end is None else max(end, samples)  # beyond its total, tqdm has no remaining time
            self._bar.set_description_str(text, refresh=False)
            self._bar.update(samples - self._position)
            self._position = samples
        elif time.monotonic() - self._shown > PLAIN_EVERY:
            self._shown = time.monotonic()
            left = (
                "" if end is None else f", eta {timedelta(seconds=round(max((end - samples) / max(speed, 1e-9), 0)))}"
            )
            self.note(text + left)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        if self._bar is not None:
            self._bar.close()
