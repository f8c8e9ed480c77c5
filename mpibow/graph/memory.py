"""The memory plan: lifetimes of values, and offsets in one arena so that values alive together never share bytes."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from .graph import Array, Shape

ALIGNMENT = 64  # bytes: a cache line


@dataclass(frozen=True)
class Block:
    """`size` bytes that must be kept from step `first` to step `last`, both included."""

    name: str
    size: int
    first: int
    last: int


def zeros(shape: int | Shape, dtype: npt.DTypeLike) -> Array:
    """Zeros whose first element lies at a multiple of ALIGNMENT; pages that nobody touches take no memory."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def lifetimes(uses: Sequence[Iterable[str]], until_end: Iterable[str]) -> dict[str, tuple[int, int]]:
    """First and last step of every name, where uses[i] are the names that step i touches."""
    spans = dict[str, tuple[int, int]]()
    for step, names in enumerate(uses):
        for name in names:
            spans[name] = (spans.get(name, (step, step))[0], step)
    for name in until_end:
        if name in spans:
            spans[name] = (spans[name][0], max(len(uses) - 1, 0))
    return spans


# Orders of placing blocks. None is best for all plans: the large first, the long-lived first, or by time.
ORDERS: tuple[Callable[[Block], tuple[int, ...]], ...] = (
    lambda block: (-block.size, block.first),
    lambda block: (-(block.last - block.first), -block.size),
    lambda block: (-block.size * (block.last - block.first + 1), block.first),
    lambda block: (block.first, -block.size),
    lambda block: (-block.last, -block.size),
)


def place(blocks: Iterable[Block]) -> tuple[dict[str, int], int]:
    """Offsets by name and the arena's size in bytes: the best of several orders, the first that is as good as can be.

    In each, blocks go one by one into the smallest gap between those already placed that live at the same time, else
    on top (greedy, Pisarchyk and Lee, arXiv:2001.03288).
    """
    blocks = list(blocks)
    least = peak(blocks)
    tries = []
    for order in ORDERS:
        tries.append(_place(sorted(blocks, key=lambda block: (*order(block), block.name))))
        if tries[-1][1] <= 1.01 * least:
            break
    return min(tries, key=lambda one: one[1])


def _place(blocks: Sequence[Block]) -> tuple[dict[str, int], int]:
    placed = list[tuple[int, int, Block]]()  # (offset, end, block)
    offsets = {}
    for block in blocks:
        size = -(-block.size // ALIGNMENT) * ALIGNMENT
        rivals = sorted(
            (start, end) for start, end, other in placed if other.first <= block.last and block.first <= other.last
        )
        best = -1
        best_gap = -1
        cursor = 0
        for start, end in rivals:
            gap = start - cursor
            if gap >= size and (best < 0 or gap < best_gap):
                best = cursor
                best_gap = gap
            cursor = max(cursor, end)
        offset = best if best >= 0 else cursor
        offsets[block.name] = offset
        placed.append((offset, offset + size, block))
    return offsets, max((end for _, end, _ in placed), default=0)


def peak(blocks: Iterable[Block]) -> int:
    """The largest sum of bytes alive at one step: no arena can be smaller."""
    changes = Counter[int]()
    for block in blocks:
        size = -(-block.size // ALIGNMENT) * ALIGNMENT
        changes[block.first] += size
        changes[block.last + 1] -= size
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)
