"""TFRecord files: u64 length, u32 masked CRC32C of it, data, u32 masked CRC32C of them, and again; little-endian."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from google_crc32c import value as crc32c

from mpibow.data.aside import file_aside, file_size, opened, refused
from mpibow.errors import RecordError

from .source_files import mapped

LENGTH = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
FRAME = LENGTH.size + CHECKSUM.size  # bytes of a record besides its data
AGAIN = "get the file again"


def masked(data: bytes) -> int:
    """The checksum as TFRecord stores it: rotated and offset, so that a CRC over data with a CRC in it is none."""
    checksum: int = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path: Path) -> Iterator[tuple[int, memoryview]]:
    """The start of each record's data, and a view of them. Lengths are checked; `read` checks the data."""
    if not file_size(path):
        return
    view, at, number = memoryview(mapped(path)), 0, 0
    while at < len(view):
        where = f"{path}: record {number}"
        if len(view) - at < FRAME:
            raise _compressed(path, view, at) or _short(where, "its header", at)
        size, said = LENGTH.unpack_from(view, at)
        if (found := masked(bytes(view[at : at + 8]))) != said:
            raise _compressed(path, view, at) or RecordError(
                f"{where}: checksum of its length is 0x{found:08x}, the file has 0x{said:08x}; "
                + ("is it a TFRecord file?" if at == 0 else AGAIN)
            )
        at += LENGTH.size
        if size + CHECKSUM.size > len(view) - at:
            raise _short(where, f"its {size} bytes", at)
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


def _short(where: str, what: str, at: int) -> RecordError:
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
