"""The size of an encoded image, from its header alone: a window is chosen before the image is decoded."""

from __future__ import annotations

from mpibow.data.dataset import Array

PNG = b"\x89PNG\r\n\x1a\n"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15; the others are tables and an extension
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # TEM, RST0 to RST7: markers without a length
_SCAN, _END = 0xDA, 0xD9
LARGEST = 1 << 26  # pixels of an image, 200 MB once decoded; a header with more is no photograph's


def size_of(image: Array | bytes) -> tuple[int, int]:
    """(height, width) of a JPEG (ITU-T T.81, B.2) or PNG (its specification, 11.2.2), bytes or (n,) uint8, as stored.

    The orientation in a camera's Exif data is not applied. Raises ValueError where the bytes are neither, end early, or
    have a header of more than LARGEST pixels.
    """
    data = memoryview(image) if isinstance(image, bytes) else image.data
    if bytes(data[:2]) == b"\xff\xd8":
        height, width = _jpeg(data)
    elif bytes(data[:8]) == PNG:
        if len(data) < 24 or bytes(data[12:16]) != b"IHDR":
            raise ValueError("a PNG without a header")
        height, width = int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")
    else:
        raise ValueError("neither a JPEG nor a PNG")
    if height == 0 or width == 0:
        raise ValueError(f"an image of {height} x {width} pixels")
    if height * width > LARGEST:
        raise ValueError(f"it has {height} x {width} pixels, and at most {LARGEST} are decoded")
    return height, width


def _jpeg(data: memoryview) -> tuple[int, int]:
    at, end = 2, len(data)
    while at + 9 <= end:
        if data[at] != 0xFF:
            raise ValueError(f"a JPEG without a marker at byte {at}")
        marker = data[at + 1]
        if marker == 0xFF:  # any number of these may stand before a marker
            at += 1
        elif marker in _ALONE:
            at += 2
        elif marker in _FRAMES:  # length, precision, height, width
            return data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8]
        elif marker in (_SCAN, _END):
            break
        else:
            length = data[at + 2] << 8 | data[at + 3]
            if length < 2:
                raise ValueError(f"a JPEG with a segment of length {length} at byte {at}")
            at += 2 + length
    raise ValueError("a JPEG without a frame")
