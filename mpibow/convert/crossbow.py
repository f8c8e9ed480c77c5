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

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mpibow.convert.conversion import file_checksum, say_turned
from mpibow.data.aside import opened
from mpibow.data.dataset import Array
from mpibow.data.image_header import sides_of
from mpibow.errors import RecordError

CLASSES = 1000
MOST = 2048  # records of a file
COUNT = struct.Struct("=i")
HEAD = struct.Struct("=3i")  # length, label, boxes
LEAST = 20  # bytes of a record with neither boxes nor image
BOX = 16
STARTS = (b"\xff\xd8\xff", b"\x89PNG")  # of an image: one of ImageNet's is a PNG, whatever its name
AGAIN = "get the file again"


@dataclass(frozen=True)
class CrossbowFile:
    """A file all of whose lengths fit: the places of its images, and their labels, each (n,) int64."""

    path: Path
    starts: Array
    sizes: Array
    labels: Array
    checksum: str

    def image(self, file: BinaryIO, record: int) -> bytes:
        """The bytes of one image, from the open file."""
        file.seek(int(self.starts[record]))
        size = int(self.sizes[record])
        data = file.read(size)
        if len(data) != size:
            raise RecordError(f"{self.path}: record {record}: the file has become shorter; {AGAIN}")
        return data


def index(path: Path) -> CrossbowFile:
    """Walks over all records, checks every length against the file, and takes its checksum.

    Raises RecordError where the file is damaged, naming the record's number.
    """
    rows = []
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        (count,) = _unpack(path, file, COUNT, "its first field")
        if not 1 <= count <= MOST:
            raise RecordError(f"{path}: has {count} records by its first field, a file has 1 to {MOST}; {AGAIN}")
        place = COUNT.size
        for record in range(count):
            start, stop, label = _record(path, file, record, place, size)
            rows.append((start, stop - start, label))
            place = stop
        if place != size:
            raise RecordError(f"{path}: goes on for {size - place:,} bytes after its last record, {count - 1}; {AGAIN}")
    starts, sizes, labels = np.array(rows, np.int64).T
    return CrossbowFile(path, starts, sizes, labels, file_checksum(path))


def images(files: Sequence[CrossbowFile], title: str) -> Iterator[tuple[bytes, int]]:
    """All images, as they are encoded, and their labels, in order; says how many lie by their Exif orientation."""
    turned = 0
    for indexed in files:
        with opened(indexed.path) as file:
            for record, label in enumerate(indexed.labels.tolist()):
                image = indexed.image(file, record)
                with suppress(ValueError):  # images are not looked into here
                    turned += sides_of(image)[1] > 1
                yield image, label
    say_turned(turned, title)


def chosen(files: Sequence[CrossbowFile], numbers: Sequence[int]) -> Iterator[bytes]:
    """The images of these numbers, counted over all files, in rising order."""
    firsts = np.cumsum([0, *(len(indexed.labels) for indexed in files)])
    for indexed, first, stop in zip(files, firsts.tolist(), firsts[1:].tolist(), strict=False):
        own = [number - first for number in numbers if first <= number < stop]
        with opened(indexed.path) as file:
            for record in own:
                yield indexed.image(file, record)


def name(files: Sequence[CrossbowFile], number: int) -> str:
    """The name of the image of this number in messages."""
    for indexed in files:
        if number < len(indexed.labels):
            break
        number -= len(indexed.labels)
    return f"{indexed.path}: record {number}"


def _record(path: Path, file: BinaryIO, record: int, place: int, size: int) -> tuple[int, int, int]:
    """Start and end of the image, and the label, of the record that starts at byte `place`."""
    shown = f"{path}: record {record}"
    file.seek(place)
    length, label, boxes = _unpack(path, file, HEAD, f"record {record}")
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


def _unpack(path: Path, file: BinaryIO, form: struct.Struct, what: str) -> tuple[int, ...]:
    data = file.read(form.size)
    if len(data) != form.size:
        raise RecordError(f"{path}: ends within {what}; {AGAIN}")
    return form.unpack(data)
