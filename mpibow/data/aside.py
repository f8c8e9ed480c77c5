"""Files and folders: read with a RecordError where they cannot be; written aside, so that each appears whole or not."""

import errno
import os
import shutil
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from mpibow.errors import RecordError
from mpibow.system import beside, open_file, refusal, sync_folder, whole_file

OURS = ("manifest.json", "tokenizer.json", "*.mpr")  # files that overwriting may remove
PLACES = (".", "train", "validation", "test")  # where they lie in one data set: others below are other data sets

FAULTS = (  # what NumPy raises for a damaged file, as it parses its header as Python, and zipfile
    ValueError,
    EOFError,
    SyntaxError,
    tokenize.TokenError,
    OverflowError,
    MemoryError,
    TypeError,
    LookupError,
    AttributeError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,  # deep in itself, packed by an unknown method, or encrypted
)

refused = partial(refusal, RecordError)  # (path, deed)


@contextmanager
def opened(path: str | Path) -> Iterator[BufferedReader]:
    """The regular file for reading. Raises RecordError, also for an OSError inside the block."""
    with refused(path, "read"), open_file(path) as file:
        yield file


def content_of(path: Path) -> bytes:
    """The bytes of a regular file. Raises RecordError."""
    with opened(path) as file:
        return file.read()


def file_size(path: Path) -> int:
    """Raises RecordError."""
    with refused(path, "read"):
        return path.stat().st_size


def file_aside(path: Path) -> AbstractContextManager[BinaryIO]:
    """A file that takes the name `path` when the block ends, and vanishes when it ends with an error."""
    return whole_file(path, refused=partial(refused, path))


@contextmanager
def folder_aside(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder that takes the name `path` when the block ends, and vanishes when it ends with an error.

    A process killed inside leaves a hidden `.NAME.tmp-*` beside `path`, which nothing reads and anyone may delete.
    """
    with refused(path):
        check_free(path, overwrite)
    aside = beside(path)
    try:
        with refused(path):
            aside.parent.mkdir(parents=True, exist_ok=True)
            aside.mkdir()
        yield aside
        with refused(path):
            sync_folder(aside)
            _move(aside, path, overwrite)
            sync_folder(aside.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_free(path: Path, overwrite: bool) -> None:
    """Raises RecordError where a data set cannot be written to `path`: it exists already, or holds other files."""
    if path.exists() and not path.is_dir():
        raise RecordError(f"{path}: is a file, a data set is a folder; choose another name")
    if not path.exists() or not any(path.iterdir()):
        return
    if not overwrite:
        raise RecordError(f"{path}: exists already; overwrite it (--overwrite) or choose another name")
    for entry in sorted(path.rglob("*")):
        place = entry.relative_to(path)
        if not entry.is_dir() and not (str(place.parent) in PLACES and any(map(place.match, OURS))):
            raise RecordError(f"{path}: also holds {place}, no record file of it; remove it or choose another name")


def _move(aside: Path, path: Path, overwrite: bool) -> None:
    real = Path(os.path.realpath(path))
    try:
        os.rename(aside, real)  # takes the place of an empty folder, refuses any other
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    check_free(path, overwrite)  # another process may have been first
    old = beside(path)
    os.rename(real, old)
    try:
        os.rename(aside, real)
    except OSError:
        os.rename(old, real)
        raise
    shutil.rmtree(old, ignore_errors=True)
