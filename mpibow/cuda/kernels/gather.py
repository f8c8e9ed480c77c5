"""The launch that makes a batch of a data set on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.cuda.kernels.kernels import Launch, instance, turns

PACK = 16  # bytes that a thread copies at once where rows are whole packs
WORD = 4  # bytes that go along with a row, such as a label


def gather(table: Any, words: Any, counters: Any, rows: Any, word: Any) -> Launch:
    """rows (n, bytes) uint8 and word (n,) <- rows of table (count, bytes) uint8 and of words (count,), of 4 bytes each.

    The rows are those of the samples in counters (n, 4) uint32, as in a slot. Arrays begin at a multiple of
    PACK bytes. `words` and `word` may be None.
    """
    (count, size), n = table.shape, len(rows)
    unit, width = ("unsigned char", size) if size % PACK else ("Pack<float, 4>", size // PACK)
    arguments = (table, words, counters, rows, word, np.int64(width), np.int64(count))
    return Launch(instance("gather", unit), (turns(width)[0], n, 1), arguments)
