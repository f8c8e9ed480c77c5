"""Files written aside, fsynced and renamed, so that each appears whole or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO


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
