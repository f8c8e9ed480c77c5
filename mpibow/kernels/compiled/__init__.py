"""Loops compiled by numba, free of the GIL: one pass through memory where a library's calls would make several."""
