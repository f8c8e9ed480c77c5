"""Regular files: read, or written aside and renamed so that each appears whole or not at all; errors in words.

A FIFO or a device is not read: it may block for ever, or never end.
"""

import errno
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

StrPath = str | os.PathLike[str]


def open_file(path: StrPath) -> BufferedReader:
    """The regular file `path` for reading. Raises OSError, also where it is another kind of file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, reason(error), os.fspath(path)) from None
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        return open(handle, "rb")
    except OSError:
        os.close(handle)
        raise


def read_file(path: StrPath) -> bytes:
    """The bytes of the regular file `path`. Raises OSError."""
    with open_file(path) as file:
        return file.read()


def reason(error: Exception) -> str:
    """Why the system refused a file, in the words of a message."""
    if isinstance(error, UnicodeEncodeError):
        return f"the locale's encoding, {error.encoding}, lacks characters of its name: use a locale of utf-8"
    return str(getattr(error, "strerror", None) or error).lower()


@contextmanager
def refusal(kind: Callable[[str], Exception], path: object, deed: str = "written", remedy: str = "") -> Iterator[None]:
    """Turns an OSError (no space, no permission, ...) into a `kind` of error: `path` cannot be `deed`; and `remedy`."""
    try:
        yield
    except OSError as error:
        raise kind("; ".join(filter(None, (f"{path}: cannot be {deed}: {reason(error)}", remedy)))) from error


def is_full(error: Exception) -> bool:
    """Whether it is for want of space: a full disk, or a quota. Safetensors gives the number as text."""
    number = re.search(r"os error (\d+)", str(error))
    return (int(number[1]) if number else getattr(error, "errno", None)) in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def whole_file(
    path: Path, *, refused: Callable[[], AbstractContextManager[None]] = nullcontext, lasting: bool = True
) -> Iterator[BinaryIO]:
    """A file that takes the name `path` when the block ends, and vanishes when it ends with an error.

    Raises OSError, through `refused` where it is not the block's. Unless `lasting`, a file may be cut off where the
    machine loses its power: it is not waited for.
    """
    aside = beside(path)
    try:
        with refused():
            file = aside.open("xb")
        with file:
            yield file
            with refused():
                file.flush()
                if lasting:
                    os.fsync(file.fileno())
        with refused():
            os.replace(aside, Path(os.path.realpath(path)))  # of a link its target
            if lasting:
                sync_folder(aside.parent)
    finally:
        with suppress(OSError):  # where no file can be, there is none
            aside.unlink()


def beside(path: Path) -> Path:
    """A new hidden name in the folder of `path`, or of its target where it is a link."""
    real = Path(os.path.realpath(path))
    return real.with_name(f".{real.name}.tmp-{uuid.uuid4().hex[:12]}")


def sync_folder(folder: Path) -> None:
    """Returns once the names in the folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(handle)
