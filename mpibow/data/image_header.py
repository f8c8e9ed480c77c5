"""The header of an encoded image: its upright size, and Exif's orientation, by which stored pixels are turned upright.

A window is chosen before the image is decoded, so the header alone is read.

orientation   1  2  3  4  5  6  7  8      (Exif 2.32, table 4)
transposed                x  x  x  x      first, then
upside down         x  x        x  x      rows are reversed, and
mirrored         x  x        x  x         columns
"""

from typing import Literal

import numpy as np

from .dataset import Array

ORDERS: dict[bytes, Literal["little", "big"]] = {b"II*\0": "little", b"MM\0*": "big"}
TAG = 0x0112
SIZES = {3: 2, 4: 4}  # bytes of a number by its type: SHORT, LONG


def orientation_of(exif: bytes | memoryview) -> int:
    """The orientation, 1 to 8, in Exif data, which are a TIFF; 1 where they have none, or are damaged."""
    order = ORDERS.get(bytes(exif[:4]))
    if order is None:
        return 1

    def number(at: int, size: int) -> int:
        return int.from_bytes(exif[at : at + size], order)

    first = number(4, 4) + 2  # of the first folder's entries: tag, type, count, value
    for at in range(first, min(first + 12 * number(first - 2, 2), len(exif) - 11), 12):
        if number(at, 2) == TAG:
            value = number(at + 8, SIZES.get(number(at + 2, 2), 0))
            return value if 1 <= value <= 8 else 1
    return 1


def _steps(orientation: int) -> tuple[bool, bool, bool]:
    """Whether stored pixels are to be transposed, then turned upside down, and mirrored."""
    return orientation > 4, orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7)


def turned(pixels: Array, orientation: int) -> Array:
    """Stored pixels (h, w, ...) upright; the same array where they are."""
    if orientation == 1:
        return pixels
    transposed, down, mirrored = _steps(orientation)
    lines = pixels.swapaxes(0, 1) if transposed else pixels
    return np.ascontiguousarray(lines[:: -1 if down else 1, :: -1 if mirrored else 1])


def stored_points(points: Array, sides: Array, orientation: int) -> Array:
    """The stored places of points (n, 2), row and column, of an upright image of `sides` (2,)."""
    transposed, down, mirrored = _steps(orientation)
    turned_back = np.where([down, mirrored], sides - points, points)
    return turned_back[:, ::-1] if transposed else turned_back


def stored_part(part: Array, sides: Array, orientation: int) -> Array:
    """The stored place of a part (4,), (top, left, height, width), of an upright image of `sides` (2,)."""
    if orientation == 1:  # nearly all, at no cost
        return part
    corners = stored_points(np.array([part[:2], part[:2] + part[2:]]), sides, orientation)
    low = corners.min(axis=0)
    return np.concatenate([low, corners.max(axis=0) - low])


PNG = b"\x89PNG\r\n\x1a\n"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15; the others are tables and an extension
_EXIF = b"Exif\0\0"
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # TEM, RST0 to RST7: markers without a length
_APP1 = 0xE1
_SCAN = 0xDA
_END = 0xD9
LARGEST = 1 << 26  # pixels of an image, 200 MB once decoded; a header with more is no photograph's


def sides_of(image: Array | bytes) -> tuple[tuple[int, int], int]:
    """The upright height and width, and Exif's orientation, of a JPEG (ITU-T T.81, B.2) or PNG (11.2.2), (n,) uint8.

    Damaged Exif data count as none. Raises ValueError where the bytes are neither, end early, or have a header of more
    than LARGEST pixels.
    """
    data = memoryview(image) if isinstance(image, bytes) else image.data
    if bytes(data[:2]) == b"\xff\xd8":
        height, width, orientation = _jpeg(data)
    elif bytes(data[:8]) == PNG:
        if len(data) < 24 or bytes(data[12:16]) != b"IHDR":
            raise ValueError("a PNG without a header")
        height = int.from_bytes(data[20:24])
        width = int.from_bytes(data[16:20])
        orientation = _in_png(data)
    else:
        raise ValueError("neither a JPEG nor a PNG")
    if height == 0 or width == 0:
        raise ValueError(f"an image of {height} x {width} pixels")
    if height * width > LARGEST:
        raise ValueError(f"it has {height} x {width} pixels, and at most {LARGEST} are decoded")
    return ((width, height) if orientation > 4 else (height, width)), orientation


def _in_png(data: memoryview) -> int:
    at = 8
    while at + 12 <= len(data):  # length, name, contents, checksum; Exif may come after the pixels
        length = int.from_bytes(data[at : at + 4])
        if bytes(data[at + 4 : at + 8]) == b"eXIf":
            return orientation_of(data[at + 8 : at + 8 + length])
        at += 12 + length
    return 1


def _jpeg(data: memoryview) -> tuple[int, int, int]:
    at = 2
    end = len(data)
    orientation = 0
    while at + 9 <= end:
        if data[at] != 0xFF:
            raise ValueError(f"a JPEG without a marker at byte {at}")
        marker = data[at + 1]
        if marker == 0xFF:  # any number of these may stand before a marker
            at += 1
        elif marker in _ALONE:
            at += 2
        elif marker in _FRAMES:  # length, precision, height, width
            return data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8], orientation or 1
        elif marker in (_SCAN, _END):
            break
        else:
            length = data[at + 2] << 8 | data[at + 3]
            if length < 2:
                raise ValueError(f"a JPEG with a segment of length {length} at byte {at}")
            if marker == _APP1 and not orientation and data[at + 4 : at + 10] == _EXIF:
                orientation = orientation_of(data[at + 10 : at + 2 + length])
            at += 2 + length
    raise ValueError("a JPEG without a frame")
