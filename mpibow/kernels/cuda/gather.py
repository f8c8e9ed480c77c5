"""The launch that makes a batch of a data set on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow.kernels.cuda.kernels import Launch, instance, turns

PACK = 16  # bytes that a thread copies at once where images are whole packs


def gather(table: Any, labels: Any, counters: Any, images: Any, label: Any) -> Launch:
    """images (n, bytes) uint8 and label (n,) int32 <- rows of table (count, bytes) uint8 and of labels (count,) int32.

    They are those of the samples that counters (n, 4) uint32 are of, as a slot has them. Arrays begin at a multiple of
    PACK bytes.
    """
    (count, size), n = table.shape, len(images)
    unit, width = ("unsigned char", size) if size % PACK else ("Pack<float, 4>", size // PACK)
    arguments = (table, labels, counters, images, label, np.int64(width), np.int64(count))
    return Launch(instance("gather", unit), (turns(width)[0], n, 1), arguments)
