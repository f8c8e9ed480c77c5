"""Plain tar files, also inside one another: the names and places of their files, without unpacking.

Python's tarfile ends silently at a damaged header, as if the archive ended there; this module raises an error.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mpibow.errors import RecordError
from mpibow.system.files import open_file, reason

BLOCK = 512  # bytes of a header; contents are padded to whole blocks
USTAR = b"ustar\0"
FILES = ("0", "\0", "7")  # types of header that contents follow: POSIX, older, contiguous
LARGEST_TEXT = 1 << 20  # of a long name or of extended headers
AGAIN = "get the file again"


class Member(NamedTuple):
    """A file in a tar: its contents are bytes [start, start + size) of the outermost tar."""

    name: str
    start: int
    size: int


def opened(path: Path) -> memoryview:
    """The tar's bytes, mapped. Raises RecordError where it cannot be read."""
    try:
        with open_file(path) as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise RecordError(f"{path}: cannot be read: {reason(error)}") from error


def members(data: memoryview, where: str, start: int = 0, stop: int | None = None) -> Iterator[Member]:
    """The files of the tar that is bytes [start, stop) of `data`, in its order; folders are left out.

    Raises RecordError, naming the tar `where`, where a header is damaged, where contents go beyond the end, where the
    empty block that closes a tar is missing, and where an entry is a link or a device.
    """
    at, stop = start, len(data) if stop is None else stop
    extended: dict[str, str] = {}  # from the header before, for the next file
    while True:
        if stop - at < BLOCK:
            raise RecordError(
                f"{where}: ends at byte {stop - start} without the empty block that closes a tar; {AGAIN}"
            )
        header = bytes(data[at : at + BLOCK])
        if not any(header):
            return
        name, size, kind = _header(header, where, at - start, first=at == start)
        at += BLOCK
        size = _decimal(extended["size"], where) if "size" in extended and kind in FILES else size
        if size > stop - at:
            raise RecordError(f"{where}: {name}: has a size of {size} bytes, {stop - at} are left; {AGAIN}")
        if kind in "xL":
            if size > LARGEST_TEXT:
                raise RecordError(f"{where}: an extended header has a size of {size} bytes; {AGAIN}")
            extended |= _extended(kind, bytes(data[at : at + size]), where)
        elif kind in FILES:
            yield Member(extended.get("path", name), at, size)
        elif kind not in "5gK":
            raise RecordError(f"{where}: {name}: is a link or device (type {kind!r}), not a file; pack files only")
        if kind not in "xLgK":
            extended = {}
        at = min(at + -(-size // BLOCK) * BLOCK, stop)


def _header(header: bytes, where: str, at: int, *, first: bool) -> tuple[str, int, str]:
    said = header[148:156].rstrip(b" \0").strip()
    found = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if not said.isdigit() or said.strip(b"01234567") or int(said, 8) != found:
        what = (
            "is not a tar archive; if it is compressed, unpack it first"
            if first
            else f"header at byte {at} is damaged; {AGAIN}"
        )
        raise RecordError(f"{where}: {what}")
    prefix = _text(header[345:500]) if header[257:263] == USTAR else ""
    name = _text(header[:100])
    field = header[124:136]
    octal = field.strip(b" \0")
    if field[0] == 0x80:  # GNU: too large for octal digits
        size = int.from_bytes(field[1:])
    elif octal.strip(b"01234567"):
        raise RecordError(f"{where}: header at byte {at} has a size of {field!r}; {AGAIN}")
    else:
        size = int(octal or b"0", 8)
    return f"{prefix}/{name}" if prefix else name, size, chr(header[156])


def _extended(kind: str, data: bytes, where: str) -> dict[str, str]:
    """GNU's long name, or POSIX's lines "length key=value\\n"."""
    if kind == "L":
        return {"path": _text(data)}
    found = {}
    while data:
        length, blank, _ = data.partition(b" ")
        size = int(length) if blank and length.isdigit() and len(length) < 8 else 0
        key, equals, value = data[len(length) + 1 : size].partition(b"=")
        if size > len(data) or not equals or value[-1:] != b"\n":
            raise RecordError(f"{where}: an extended header is damaged; {AGAIN}")
        found[key.decode("utf-8", "replace")] = value[:-1].decode("utf-8", "replace")
        data = data[size:]
    return {key: found[key] for key in ("path", "size") if key in found}


def _decimal(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise RecordError(f"{where}: an extended header has the size {text[:40]!r}; {AGAIN}")
    return int(text)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")
