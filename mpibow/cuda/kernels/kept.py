"""Plans and compiled kernels kept on disk: one file each, named by a digest, written aside, checked on reading.

A file is a checksum of what is behind it, a line of JSON, and the machine code.
"""

import hashlib
import json
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpibow.system import whole_file

from .specs import Spec

Head = dict[str, Any]  # of JSON
MAGIC, VERSION = "mpibow cuDNN plan", 1


def digest(*parts: object) -> str:
    """A name for a file that depends on all of these."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def read_code(path: Path) -> tuple[Head, bytes]:
    """The file's JSON object and code; none of either where it is not there or not whole: then make it again."""
    with suppress(OSError):
        check, _, body = path.read_bytes().partition(b"\n")
        if check == _check(body):
            head, _, code = body.partition(b"\n")
            return json.loads(head), code
    return {}, b""


def write_code(path: Path, head: Head, code: bytes) -> None:
    """Where the folder takes no files it is not kept."""
    body = json.dumps(head).encode() + b"\n" + code
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:  # ranks may make the same at once
            file.write(_check(body) + b"\n" + body)


def _check(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)


@dataclass(frozen=True)
class Made:
    """A finished plan: cuDNN's own bytes, the engine's name, its workspace in bytes, and how long it took if timed."""

    blob: bytes
    engine: str
    workspace: int
    seconds: float | None = None


@dataclass(frozen=True)
class Folder:
    """Plans for one kind of device, one cuDNN and one way of choosing: `about` is all that a plan depends on beside its
    spec. Several ranks may read and write it at once."""

    path: Path
    about: tuple[str, ...]

    def read(self, spec: Spec) -> Made | None:
        """The plan of `spec`, None where there is none that is whole and made for just this: then make it again."""
        found, blob = read_code(self.file_of(spec))
        made = Made(blob, found.get("engine", ""), found.get("workspace", 0), found.get("seconds"))
        return made if found == self._head(spec, made) else None  # it may be of another version of this format

    def write(self, spec: Spec, made: Made) -> None:
        write_code(self.file_of(spec), self._head(spec, made), made.blob)

    def file_of(self, spec: Spec) -> Path:
        return self.path / f"{spec.kind}-{digest(spec, self.about)}.plan"

    def _head(self, spec: Spec, made: Made) -> Head:
        about = {"magic": MAGIC, "version": VERSION, "spec": repr(spec), "about": list(self.about)}
        figures = {"engine": made.engine, "workspace": made.workspace, "seconds": made.seconds}
        return {**about, **figures, "bytes": len(made.blob)}
