"""Plans kept on disk: one file each, named by a digest, written aside and renamed, checked on reading."""

import json
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from mpibow.system.files import whole_file

from .operands import digest
from .specs import Spec

MAGIC, VERSION = "mpibow cuDNN plan", 1


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
        try:
            check, _, body = self.file_of(spec).read_bytes().partition(b"\n")
            if check != _check(body):
                return None
            head, _, blob = body.partition(b"\n")
            found = json.loads(head)
            made = Made(blob, found["engine"], int(found["workspace"]), found["seconds"])
        except (OSError, ValueError, KeyError, TypeError):  # of another version of this format, too
            return None
        return made if found == self._head(spec, made) else None

    def write(self, spec: Spec, made: Made) -> None:
        """Keeps the plan; where the folder takes no files it is not kept, and made again next time."""
        body = json.dumps(self._head(spec, made)).encode() + b"\n" + made.blob
        with suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
            with whole_file(self.file_of(spec)) as file:
                file.write(_check(body) + b"\n" + body)

    def file_of(self, spec: Spec) -> Path:
        return self.path / f"{spec.kind}-{digest(spec, self.about)}.plan"

    def _head(self, spec: Spec, made: Made) -> dict[str, object]:
        about = {"magic": MAGIC, "version": VERSION, "spec": repr(spec), "about": list(self.about)}
        plan = {key: value for key, value in asdict(made).items() if key != "blob"}
        return {**about, **plan, "bytes": len(made.blob)}


def _check(body: bytes) -> bytes:
    """The file's first line: a checksum of all that is behind it."""
    return b"%08x" % zlib.crc32(body)
