"""Exif's orientation: how an image that is stored lying or mirrored is turned upright. Pure functions.

orientation   1  2  3  4  5  6  7  8      (Exif 2.32, table 4)
transposed                x  x  x  x      first, then
upside down         x  x        x  x      rows are reversed, and
mirrored         x  x        x  x         columns
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from mpibow.data.dataset import Array

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
