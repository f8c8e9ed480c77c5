"""What a call allocates, as Python counts it."""

import tracemalloc
from collections.abc import Callable

import numpy as np

TRIES = 3


def allocated(run: Callable) -> tuple[int, int]:
    """Bytes at most while `run` runs, and those that stay: the least of a few times, as other threads allocate too."""
    size = np.getbufsize()
    np.setbufsize(16)  # NumPy converts between dtypes through buffers of fixed size, 32 KB each: make them small
    peaks, kept = [], []
    try:
        run()
        tracemalloc.start()
        run()
        for _ in range(TRIES):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            run()
            after, peak = tracemalloc.get_traced_memory()
            peaks.append(peak - before)
            kept.append(after - before)
    finally:
        tracemalloc.stop()
        np.setbufsize(size)
    return min(peaks), min(kept)
