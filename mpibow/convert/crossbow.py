"""The ImageNet record files of Crossbow's release of 2019: native byte order, no magic, no checksum.

byte          size     field
0             i32      records in the file, 1 to 2048; then each of them:
0             i32      its length: 20 + 16 k + bytes of the image, this field included
4             i32      label, 0 to 999
8             i32      k, number of boxes
12            16 k     f32 xmin[k], ymin[k], xmax[k], ymax[k]
12 + 16 k     2 i32    height, width
20 + 16 k     the rest the image, a JPEG
"""

import os
import struct
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from mpibow.data.aside import opened
from mpibow.data.image_header import sides_of
from mpibow.errors import RecordError

from .conversion import file_checksum
from .entries import ImageGroup, group_of
from .recode import Recoded
from .source_files import read_whole

CLASSES = 1000
MOST = 2048  # records of a file
COUNT = struct.Struct("=i")
HEAD = struct.Struct("=3i")  # length, label, boxes
LEAST = 20  # bytes of a record with neither boxes nor image
BOX = 16
STARTS = (b"\xff\xd8\xff", b"\x89PNG")  # of an image: one of ImageNet's is a PNG, whatever its name
AGAIN = "get the file again"


def index(path: Path) -> tuple[ImageGroup, str]:
    """The places of the file's images, after a check of every length, and the file's checksum.

    Raises RecordError where the file is damaged, naming the record's number.
    """
    rows = []
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        (count,) = COUNT.unpack(read_whole(path, file, COUNT.size, "its first field"))
        if not 1 <= count <= MOST:
            raise RecordError(f"{path}: has {count} records by its first field, a file has 1 to {MOST}; {AGAIN}")
        place = COUNT.size
        for record in range(count):
            start, stop, label = _record(path, file, record, place, size)
            rows.append((start, stop - start, label))
            place = stop
        if place != size:
            raise RecordError(f"{path}: goes on for {size - place:,} bytes after its last record, {count - 1}; {AGAIN}")
    return group_of(path, range(count), rows), file_checksum(path)


def as_it_is(data: bytes) -> Recoded[bytes]:
    """The image in a record, which is not looked into here."""
    lying = False
    with suppress(ValueError):
        lying = sides_of(data)[1] > 1
    return Recoded(data, lying=lying)


def _record(path: Path, file: BufferedReader, record: int, place: int, size: int) -> tuple[int, int, int]:
    """Start and end of the image, and the label, of the record that starts at byte `place`."""
    shown = f"{path}: record {record}"
    file.seek(place)
    length, label, boxes = HEAD.unpack(read_whole(path, file, HEAD.size, f"record {record}"))
    if boxes < 0 or length <= LEAST + BOX * boxes:
        least = f"with {boxes} boxes it is above {LEAST + BOX * boxes}" if boxes >= 0 else f"it has {boxes} boxes"
        raise RecordError(f"{shown}: length is {length}, {least}; {AGAIN}")
    if place + length > size:
        raise RecordError(f"{shown}: goes on to byte {place + length:,}, the file ends at {size:,}; {AGAIN}")
    if not 0 <= label < CLASSES:
        raise RecordError(f"{shown}: label is {label}, it lies in [0, {CLASSES}); {AGAIN}")
    start = place + LEAST + BOX * boxes
    file.seek(start)
    begins = file.read(max(map(len, STARTS)))
    if not begins.startswith(STARTS):
        raise RecordError(
            f"{shown}: its image starts with {begins.hex(' ')}, a JPEG with {STARTS[0].hex(' ')}; {AGAIN}"
        )
    return start, place + length, label
