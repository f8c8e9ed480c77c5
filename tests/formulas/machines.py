"""The machines that run a step's formula: NumPy, numba, and CUDA C++ on the host."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType

import pytest

from mpibow.formulas import Array, Formula, numba_source

Machine = Callable[[Formula, Array, Array, Sequence[Array], Sequence[float]], Array]

LOOP = """
@_numba.njit(nogil=True, error_model="numpy")
def loop(w, g, states, scalars, u):
    for j in range(len(w)):
        u[j] = step(w[j], g[j], states, j, scalars)
"""


def numpy(formula: Formula, w: Array, g: Array, states: Sequence[Array], scalars: Sequence[float]) -> Array:
    """The step u; the states are updated."""
    u, *new = formula(w, g, *states, **dict(zip(formula.scalars, scalars, strict=True)))
    for state, values in zip(states, new, strict=True):
        state[...] = values
    return u


def numba(formula: Formula, w: Array, g: Array, states: Sequence[Array], scalars: Sequence[float]) -> Array:
    u = w.copy()
    _module(formula).loop(w, g, tuple(states), tuple(map(w.dtype.type, scalars)), u)
    return u


@cache
def _module(formula: Formula):
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    text = numba_source.source(formula) + LOOP
    module = ModuleType(f"made_{hashlib.sha256(text.encode()).hexdigest()[:8]}")
    exec(compile(text, module.__name__, "exec"), module.__dict__)
    return module
