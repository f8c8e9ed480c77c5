"""What numba compiles: loops that a library's calls would walk through memory for more than once, free of the GIL."""
