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


def _split(tag: str, shape: Shape) -> tuple[Shape, list[int]]:
    """Every axis cut into its outer part and its blocks, in the tensor's order; and the layout's order of those parts.

    aBcd16b of (n, c, h, w): (n, c / 16, 16, h, w) and [0, 1, 3, 4, 2].
    """
    outer, blocks = parse(tag)
    extents = list[int]()
    places = dict[tuple[int, int], int]()  # (axis, number of the block; -1 is the outer part) -> place in extents
    for axis, extent in enumerate(shape):
        places[axis, -1] = len(extents)
        extents.append(-(-extent // _block(tag, axis)))
        for number, (a, size) in enumerate(blocks):
            if a == axis:
                places[axis, number] = len(extents)
                extents.append(size)
    order = [places[axis, -1] for axis in outer] + [places[axis, number] for number, (axis, _) in enumerate(blocks)]
    return tuple(extents), order


def pack(array: Array, tag: str) -> Array:
    """The canonical `array` in the layout `tag`: an array of physical(tag, array.shape), row by row."""
    extents, order = _split(tag, array.shape)
    widths = [(0, -extent % _block(tag, axis)) for axis, extent in enumerate(array.shape)]
    padded = np.pad(array, widths) if any(after for _, after in widths) else array
    return np.asarray(padded.reshape(extents).transpose(order), order="C")  # ascontiguousarray adds an axis to ()


def unpack(array: Array, tag: str, shape: Shape) -> Array:
    """The canonical array (shape) of `array`, which is in the layout `tag`."""
    _, order = _split(tag, shape)
    whole = array.reshape(physical(tag, shape)).transpose(np.argsort(order))
    padded = tuple(extent + -extent % _block(tag, axis) for axis, extent in enumerate(shape))
    return np.asarray(whole.reshape(padded)[tuple(map(slice, shape))], order="C")


class Reorder(Op):
    """y = x in another layout. Plans insert it where kernels request different ones."""

    source: str
    target: str
    kind = "reorder"
