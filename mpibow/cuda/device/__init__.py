"""A rank's GPU: its memory, streams and events. CuPy is imported in cupy_driver only."""
