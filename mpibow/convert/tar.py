"""Plain tar files, also inside one another: the names and places of their files, without unpacking.

Python's tarfile ends silently at a damaged header, as if the archive ended there; this module raises an error.
"""

from __future__ import annotations

import mmap
import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from mpibow.errors import RecordError
from mpibow.system.files import open_file, reason

BLOCK = tarfile.BLOCKSIZE  # bytes of a header; contents are padded to whole blocks
AGAIN = "get the file again"


class Member(NamedTuple):
    """A file in a tar: its contents are bytes [start, start + size) of the outermost tar."""

    name: str
    start: int
    size: int


def opened(path: Path) -> mmap.mmap:
    """The tar's bytes, mapped. Raises RecordError where it cannot be read."""
    try:
        with open_file(path) as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise RecordError(f"{path}: cannot be read: {reason(error)}") from error


def members(file: mmap.mmap | BytesIO, where: str, start: int = 0, stop: int | None = None) -> Iterator[Member]:
    """The files of the tar that is bytes [start, stop) of `file`, in its order; folders are left out.

    Raises RecordError, naming the tar `where`, where a header is damaged, where contents go beyond the end, where the
    empty block that closes a tar is missing, and where an entry is a link or a device.
    """
    if stop is None:
        file.seek(0, os.SEEK_END)
        stop = file.tell()
    file.seek(start)
    archive: tarfile.TarFile | None = None
    with suppress(tarfile.TarError, ValueError, OverflowError, MemoryError):  # the header after the last is looked at
        archive = tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="replace")  # noqa: SIM115
        for member in archive:
            if member.offset_data > stop:
                break
            if not 0 <= member.size <= stop - member.offset_data:
                raise RecordError(
                    f"{where}: {member.name}: has a size of {member.size} bytes, {stop - member.offset_data} are left; "
                    f"{AGAIN}"
                )
            if member.isreg() and not member.issparse():
                yield Member(member.name, member.offset_data, member.size)
            elif not member.isdir():
                kind = member.type.decode("latin-1")
                raise RecordError(
                    f"{where}: {member.name}: is a link or device (type {kind!r}), not a file; pack files only"
                )
    end = archive.offset if archive else start
    file.seek(min(end, stop))
    last = file.read(max(min(BLOCK, stop - end), 0))
    if len(last) < BLOCK:
        raise RecordError(f"{where}: ends at byte {stop - start} without the empty block that closes a tar; {AGAIN}")
    if any(last):
        damaged = f"header at byte {end - start} is damaged; {AGAIN}"
        what = "is not a tar archive; if it is compressed, unpack it first" if end == start else damaged
        raise RecordError(f"{where}: {what}")
