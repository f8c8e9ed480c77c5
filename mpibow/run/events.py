"""metrics.jsonl: what happened in a run, one event a line, in the order in which it happened."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from mpibow.errors import MpibowError


class Events(Protocol):
    """Where events go; `mark` is how many bytes they take so far, to which a resumed run cuts them back."""

    def add(self, event: str, **fields: Any) -> None: ...
    def mark(self) -> int: ...
    def close(self) -> None: ...


class Silent:
    """For ranks that write nothing."""

    def add(self, event: str, **fields: Any) -> None:
        pass

    def mark(self) -> int:
        return 0

    def close(self) -> None:
        pass


class EventFile:
    """Appends to `path`; what lies behind `keep` bytes was written by a run that went on after its last checkpoint.

    A file that lost its end may stop within a line, which goes: nobody could read it or the next one.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self._path = path
        try:
            self._file: BinaryIO = path.open("a+b")
            size = self._file.tell()
            self._file.seek(0)
            lines = self._file.read(min(keep, size)).rfind(b"\n") + 1
            if lines < size:
                self._file.truncate(lines)
            self._file.seek(lines)  # else `mark` would tell where the end was
        except OSError as error:
            raise cannot_write(path, error) from error

    def add(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields}) + "\n"
        try:
            self._file.write(line.encode())
            self._file.flush()
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def mark(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        with suppress(OSError):  # of a line that `add` has complained of
            self._file.close()


def cannot_write(path: Path, error: OSError) -> MpibowError:
    """What to say of a file of the run directory that the system refuses."""
    return MpibowError(
        f"{path}: cannot be written: {(error.strerror or str(error)).lower()}; set out= to another place"
    )
