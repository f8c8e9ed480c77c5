"""Formulas of one element, written once as Python functions: NumPy runs them, numba and CUDA C are generated."""
