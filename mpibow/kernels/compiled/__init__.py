"""Loops compiled by numba, free of the GIL: one pass through memory where a library's calls would make several."""

from mpibow.kernels import isa  # noqa: F401  its limit is set before any function here is decorated
