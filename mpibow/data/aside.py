"""Files and folders written aside, fsynced and renamed, so that each appears whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mpibow.errors import RecordError
from mpibow.system.files import reason

OURS = ("manifest.json", "tokenizer.json", "*.mpr")  # files that overwriting may remove


@contextmanager
def refused(path: object, deed: str = "written") -> Iterator[None]:
    """Turns an OSError (no space, no permission, ...) into a RecordError that `path` cannot be `deed`."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path}: cannot be {deed}: {reason(error)}") from error


@contextmanager
def file_aside(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the name `path` when the block ends, and vanishes when it ends with an error."""
    aside = _aside(path)
    try:
        with refused(path):
            file = aside.open("xb")
        with file:
            yield file
            with refused(path):
                file.flush()
                os.fsync(file.fileno())
        with refused(path):
            os.replace(aside, path)
            _sync_folder(path.parent)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def folder_aside(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder that takes the name `path` when the block ends, and vanishes when it ends with an error.

    A process killed inside leaves a hidden `.NAME.tmp-*` beside `path`, which nothing reads and anyone may delete.
    """
    with refused(path):
        check_free(path, overwrite)
    aside = _aside(path)
    try:
        with refused(path):
            aside.parent.mkdir(parents=True, exist_ok=True)
            aside.mkdir()
        yield aside
        with refused(path):
            _sync_folder(aside)
            _move(aside, path, overwrite)
            _sync_folder(aside.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _aside(path: Path) -> Path:
    real = Path(os.path.realpath(path))  # a link's target is replaced, not the link
    return real.with_name(f".{real.name}.tmp-{uuid.uuid4().hex[:12]}")


def check_free(path: Path, overwrite: bool) -> None:
    """Raises RecordError where a data set cannot be written to `path`: it exists already, or holds other files."""
    if path.exists() and not path.is_dir():
        raise RecordError(f"{path}: is a file, a data set is a folder; choose another name")
    if not path.exists() or not any(path.iterdir()):
        return
    if not overwrite:
        raise RecordError(f"{path}: exists already; overwrite it (--overwrite) or choose another name")
    for entry in sorted(path.rglob("*")):
        if not entry.is_dir() and not any(entry.match(pattern) for pattern in OURS):
            raise RecordError(f"{path}: also holds {entry.name}, no record file; remove it or choose another name")


def _move(aside: Path, path: Path, overwrite: bool) -> None:
    real = Path(os.path.realpath(path))
    try:
        os.rename(aside, real)  # takes the place of an empty folder, refuses any other
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    check_free(path, overwrite)  # another process may have been first
    old = _aside(path)
    os.rename(real, old)
    try:
        os.rename(aside, real)
    except OSError:
        os.rename(old, real)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(handle)
