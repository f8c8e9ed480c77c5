"""The IDX files of MNIST and its kin: big-endian, 00 00 08 <dimensions>, a u32 a dimension, then unsigned bytes."""

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mpibow.data import Array
from mpibow.errors import RecordError

from .source_files import Source, opened, read_whole

LARGEST_SIDE = 4096  # of an image; a larger one is a damaged header


def images(path: Path) -> Iterator[Array]:
    """The images (h, w) uint8 of a 3-D IDX file, one at a time; unpacked where the name ends with .gz or .xz.

    Raises RecordError where the file is damaged: at the start, or when the iteration reaches the place.
    """
    with opened(path) as file:
        count, *shape = _header(path, file, 3)
        if not all(1 <= side <= LARGEST_SIDE for side in shape):
            raise RecordError(f"{path}: image sides must lie in [1, {LARGEST_SIDE}], got {shape[0]} x {shape[1]}")
        for image in range(count):
            data = read_whole(path, file, math.prod(shape), f"image {image} of {count}")
            yield np.frombuffer(data, np.uint8).reshape(shape)
        if file.read(1):
            raise RecordError(f"{path}: has more bytes after the last image of its header; get the file again")


def labels(path: Path) -> Array:
    """The labels (n,) uint8 of a 1-D IDX file."""
    with opened(path) as file:
        (count,) = _header(path, file, 1)
        values = file.read()  # not `count`, which may be wrong
        if len(values) != count:
            raise RecordError(f"{path}: has {len(values)} labels, its header has {count}; get the file again")
    return np.frombuffer(values, np.uint8)


def count(path: Path, dimensions: int) -> int:
    """The number of entries in the header."""
    with opened(path) as file:
        return _header(path, file, dimensions)[0]


def _header(path: Path, file: Source, dimensions: int) -> list[int]:
    magic = read_whole(path, file, 4, "the header")
    expected = bytes([0, 0, 8, dimensions])
    if magic != expected:
        what = f"an IDX file of bytes in {dimensions} dimensions"
        raise RecordError(f"{path}: starts with {magic.hex(' ')}, {what} with {expected.hex(' ')}")
    return list(struct.unpack(f">{dimensions}I", read_whole(path, file, 4 * dimensions, "the header")))
