"""The GPU of a rank: found by local rank, its memory, streams and events. CuPy is imported in cupy_driver only."""
