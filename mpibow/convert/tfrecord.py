"""TFRecord files: u64 length, u32 masked CRC32C of it, data, u32 masked CRC32C of them, and again; little-endian."""

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from google_crc32c import value as crc32c

from mpibow.data.aside import content_of, file_aside, file_size, opened, refused
from mpibow.errors import RecordError

from .source_files import mapped

LENGTH = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
FRAME = LENGTH.size + CHECKSUM.size  # bytes of a record besides its data
PIECE = 64 << 20  # bytes of a file that one process looks through, where an index lists the starts of records
ENTRY = re.compile(r"\s*(\d{1,19})\s+(\d{1,19})\s*")  # of an index
AGAIN = "get the file again"


class FilePiece(NamedTuple):
    """Records from number `first` on, in the bytes [start, stop) of a file."""

    path: Path
    first: int
    start: int
    stop: int


def masked(data: bytes) -> int:
    """The checksum as TFRecord stores it: rotated and offset, so that a CRC over data with a CRC in it is none."""
    checksum: int = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def pieces(path: Path, index: Path | None = None, size: int = PIECE) -> list[FilePiece]:
    """The file as one piece; with an index, DALI's ("offset size" a line, of whole records), cut every `size` bytes.

    Raises RecordError where the index does not tile the file.
    """
    end = file_size(path)
    if index is None:
        return [FilePiece(path, 0, 0, end)]
    found = []
    first = start = at = 0
    number = -1
    try:
        lines = content_of(index).decode("ascii").splitlines()
    except ValueError as error:
        raise RecordError(f"{index}: is not an index: it is not text") from error
    for number, line in enumerate(lines):
        if (match := ENTRY.fullmatch(line)) is None:
            raise _stale(path, index, number, f"must be an offset and a size, got {line[:40]!r}")
        offset, length = map(int, match.groups())
        if offset != at or length < FRAME:
            raise _stale(path, index, number, f"has {line!r} where a record starts at byte {at}")
        if at - start >= size:
            found.append(FilePiece(path, first, start, at))
            first = number
            start = at
        at += length
    if at != end:
        raise _stale(path, index, number, f"ends at byte {at}, the file at byte {end}")
    return [*found, FilePiece(path, first, start, end)]


def records(piece: FilePiece) -> Iterator[tuple[int, memoryview]]:
    """The start of each record's data, and a view of them. Lengths are checked; `read` checks the data."""
    if piece.start == piece.stop:
        return
    view = memoryview(mapped(piece.path))
    at = piece.start
    number = piece.first
    while at < piece.stop:
        where = f"{piece.path}: record {number}"
        if piece.stop - at < FRAME:
            raise _compressed(piece.path, view, at) or _short(where, "its header", at, piece, len(view))
        size, said = LENGTH.unpack_from(view, at)
        if (found := masked(bytes(view[at : at + 8]))) != said:
            raise _compressed(piece.path, view, at) or RecordError(
                f"{where}: checksum of its length is 0x{found:08x}, the file has 0x{said:08x}; "
                + ("is it a TFRecord file?" if at == 0 else AGAIN)
            )
        at += LENGTH.size
        if size + CHECKSUM.size > piece.stop - at:
            raise _short(where, f"its {size} bytes", at, piece, len(view))
        yield at, view[at : at + size]
        at += size + CHECKSUM.size
        number += 1


def read(path: str | Path, number: int, start: int, size: int) -> bytes:
    """The data of a record at the place that `records` found; both checksums are compared."""
    where = f"{path}: record {number}"
    with opened(path) as file:
        file.seek(start - LENGTH.size)
        frame = file.read(size + FRAME)
    if len(frame) != size + FRAME or LENGTH.unpack_from(frame) != (size, masked(frame[:8])):
        raise RecordError(f"{where}: is no longer where it was; did the file change?")
    data = frame[LENGTH.size : -CHECKSUM.size]
    (said,) = CHECKSUM.unpack(frame[-CHECKSUM.size :])
    if (found := masked(data)) != said:
        raise RecordError(f"{where}: checksum of its data is 0x{found:08x}, the file has 0x{said:08x}; {AGAIN}")
    return data


@contextmanager
def write_tfrecord(path: Path, shown: Path) -> Iterator[Callable[[bytes], None]]:
    """Adds records to the file `path`, which is there, whole, when the block ends without an error.

    Errors name it `shown`, for a file whose folder is still to be renamed.
    """
    with file_aside(path) as file:

        def add(data: bytes) -> None:
            length = struct.pack("<Q", len(data))
            with refused(shown):
                file.writelines((length, CHECKSUM.pack(masked(length)), data, CHECKSUM.pack(masked(data))))

        yield add


def _stale(path: Path, index: Path, number: int, what: str) -> RecordError:
    return RecordError(f"{index}: line {number + 1}: {what}; make the index of {path.name} again, or go without")


def _short(where: str, what: str, at: int, piece: FilePiece, size: int) -> RecordError:
    if piece.stop < size:
        return RecordError(
            f"{where}: {what} from byte {at} on go beyond byte {piece.stop}; is the index another file's?"
        )
    return RecordError(f"{where}: the file ends within {what} from byte {at} on; {AGAIN}")


def _compressed(path: Path, view: memoryview, at: int) -> RecordError | None:
    """The error for a compressed file, only if the first length is wrong: any two bytes may start a right one."""
    first = bytes(view[:2]) if at == 0 else b""
    if first == b"\x1f\x8b":
        plain = path.name.removesuffix(".gz") if path.suffix == ".gz" else f"{path.name}.plain"
        return RecordError(f"{path}: is compressed (GZIP); unpack it first: gzip -dc {path.name} > {plain}")
    if len(first) == 2 and first[0] & 15 == 8 and int.from_bytes(first) % 31 == 0:
        return RecordError(f'{path}: is compressed (ZLIB); write it again with TFRecordOptions(compression_type="")')
    return None
