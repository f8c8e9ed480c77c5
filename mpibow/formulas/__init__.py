"""Formulas of one element, written once as Python functions: NumPy runs them, numba and CUDA C are generated."""

from .language import formula
from .tree import Apply, Array, Arrays, ArraysByName, Dialect, Expression, Formula, Machine, Name, Number
