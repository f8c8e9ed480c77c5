"""Physical layouts: a tag gives the order and the blocks in which the elements of a tensor lie in memory.

Tags are oneDNN's: letters are the tensor's axes from the outermost; a capital one is cut into blocks, whose sizes
follow, the innermost last. Images in blocks of 16 channels are aBcd16b: an array (n, channels / 16, h, w, 16). If
blocks do not divide an extent, the rest is padding, always zero. Canonical is row by row: abcd, as in PyTorch.
"""

import re
from functools import cache
from math import prod

import numpy as np

from .graph import Array, Op, Shape


def canonical(shape: Shape) -> str:
    """The tag of an array (shape) in the layout of NumPy and PyTorch."""
    return "abcdefghijkl"[: len(shape)]


@cache
def parse(tag: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """The axes from the outermost, and the blocks (axis, size)."""
    letters = re.match(r"[a-zA-Z]*", tag)
    assert letters is not None
    outer = tuple(ord(letter) - ord("a") for letter in letters[0].lower())
    blocks = re.findall(r"(\d+)([a-z])", tag[letters.end() :])
    return outer, tuple((ord(letter) - ord("a"), int(size)) for size, letter in blocks)


def _block(tag: str, axis: int) -> int:
    return prod(size for a, size in parse(tag)[1] if a == axis)


def physical(tag: str, shape: Shape) -> Shape:
    """The shape of the array that holds a tensor (shape) in the layout `tag`, padding included."""
    outer, blocks = parse(tag)
    return (*(-(-shape[axis] // _block(tag, axis)) for axis in outer), *(size for _, size in blocks))


def _places(tag: str) -> list[int]:
    """The places in the layout of the parts of every axis, its outer part and then its blocks, in the tensor's order.

    aBcd16b: [0, 1, 4, 2, 3], for (n, c / 16, 16, h, w).
    """
    outer, blocks = parse(tag)
    parts = [(axis, -1) for axis in outer] + [(axis, number) for number, (axis, _) in enumerate(blocks)]
    return sorted(range(len(parts)), key=parts.__getitem__)


def pack(array: Array, tag: str) -> Array:
    """The canonical `array` in the layout `tag`: an array of physical(tag, array.shape), row by row."""
    places = _places(tag)
    extents = physical(tag, array.shape)
    widths = [(0, -extent % _block(tag, axis)) for axis, extent in enumerate(array.shape)]
    padded = np.pad(array, widths) if any(after for _, after in widths) else array
    parts = padded.reshape([extents[place] for place in places])
    return np.asarray(parts.transpose(np.argsort(places)), order="C")  # ascontiguousarray adds an axis to ()


def unpack(array: Array, tag: str, shape: Shape) -> Array:
    """The canonical array (shape) of `array`, which is in the layout `tag`."""
    whole = array.reshape(physical(tag, shape)).transpose(_places(tag))
    padded = tuple(extent + -extent % _block(tag, axis) for axis, extent in enumerate(shape))
    return np.asarray(whole.reshape(padded)[tuple(map(slice, shape))], order="C")


class Reorder(Op):
    """y = x in another layout. Plans insert it where kernels request different ones."""

    source: str
    target: str
    kind = "reorder"
