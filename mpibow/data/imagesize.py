"""The size of an encoded image, from its header alone: a window is chosen before the image is decoded."""

from __future__ import annotations

from mpibow.data.dataset import Array
from mpibow.data.orientation import orientation_of

PNG = b"\x89PNG\r\n\x1a\n"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15; the others are tables and an extension
_EXIF = b"Exif\0\0"
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # TEM, RST0 to RST7: markers without a length
_APP1, _SCAN, _END = 0xE1, 0xDA, 0xD9
LARGEST = 1 << 26  # pixels of an image, 200 MB once decoded; a header with more is no photograph's


def size_of(image: Array | bytes) -> tuple[int, int]:
    """(height, width) of a JPEG or PNG once it is upright; see `sides_of`."""
    return sides_of(image)[0]


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
        height, width = int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")
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
        length, name = int.from_bytes(data[at : at + 4], "big"), bytes(data[at + 4 : at + 8])
        if name == b"eXIf":
            return orientation_of(data[at + 8 : at + 8 + length])
        at += 12 + length
    return 1


def _jpeg(data: memoryview) -> tuple[int, int, int]:
    at, end, orientation = 2, len(data), 0
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
