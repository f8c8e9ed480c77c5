"""Plain tar files, also inside one another: the names and places of their files, without unpacking.

Python's tarfile ends silently at a damaged header, as if the archive ended there, and takes an extended header up to
its first damaged record; this module raises an error.
"""

import mmap
import os
import re
import tarfile
from collections.abc import Iterator
from io import BytesIO
from typing import NamedTuple, Self

from mpibow.errors import RecordError

BLOCK = tarfile.BLOCKSIZE  # bytes of a header; contents are padded to whole blocks
EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)  # headers whose contents are records
LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
LARGEST_TEXT = 1 << 20  # bytes of a long name or of extended headers
RECORD = re.compile(rb"(\d{1,7}) ([^=]+)=")  # then the value and a newline; the number counts the whole record's bytes
SIZE = re.compile(rb"[0-9]{1,19}")
AGAIN = "get the file again"


class Member(NamedTuple):
    """A file in a tar: its contents are bytes [start, start + size) of the outermost tar."""

    name: str
    start: int
    size: int


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
    try:
        archive = tarfile.open(  # noqa: SIM115
            fileobj=file, mode="r:", encoding="utf-8", errors="replace", tarinfo=_Checked
        )
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
                raise RecordError(
                    f"{where}: {member.name}: is a link or device (type {member.type.decode('latin-1')!r}), "
                    "not a file; pack files only"
                )
    except _ExtendedError as error:
        raise RecordError(f"{where}: an extended header {error}; {AGAIN}") from error
    except (tarfile.TarError, ValueError, OverflowError, MemoryError):
        pass  # the header after the last is looked at
    end = archive.offset if archive else start
    file.seek(min(end, stop))
    last = file.read(max(min(BLOCK, stop - end), 0))
    if len(last) < BLOCK:
        raise RecordError(f"{where}: ends at byte {stop - start} without the empty block that closes a tar; {AGAIN}")
    if any(last):
        damaged = f"header at byte {end - start} is damaged; {AGAIN}"
        what = "is not a tar archive; if it is compressed, unpack it first" if end == start else damaged
        raise RecordError(f"{where}: {what}")


class _ExtendedError(Exception):
    """What is wrong with an extended header."""


class _Checked(tarfile.TarInfo):
    """A header whose long name or records are checked before tarfile takes what it understands of them."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        """The next header. Raises _ExtendedError where it is an extended one that is damaged or too large."""
        file = tarfile.fileobj
        assert file is not None
        start = file.tell()
        header = file.read(BLOCK)
        if header[156:157] in (*EXTENDED, *LONG):
            size = cls.frombuf(header, tarfile.encoding or "utf-8", tarfile.errors or "replace").size
            if not 0 <= size <= LARGEST_TEXT:
                raise _ExtendedError(f"has a size of {size} bytes")
            if header[156:157] in EXTENDED:
                _check(file.read(size), size)
        file.seek(start)
        return super().fromtarfile(tarfile)


def _check(records: bytes, size: int) -> None:
    """Raises _ExtendedError where `size` bytes are not records "length key=value\\n", or a file's size is no number."""
    at = 0
    while at < size:
        record = RECORD.match(records, at)
        stop = at + int(record[1]) if record else 0
        if not record or stop <= record.end() or records[stop - 1 : stop] != b"\n":
            raise _ExtendedError("is damaged")
        value = records[record.end() : stop - 1]
        if record[2] == b"size" and not SIZE.fullmatch(value):
            raise _ExtendedError(f"has the size {value[:40].decode('utf-8', 'replace')!r}")
        at = stop
