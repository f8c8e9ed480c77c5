"""The check of an optimiser: its declaration, its numbers, and every machine beside NumPy."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np

from mpibow.formulas import Array, Formula, Machine, numba_source
from mpibow.formulas.functions import CURVES
from mpibow.job.choice import ROOMS
from mpibow.optim import Update

SIZE = 1003  # no multiple of a vector's lanes
LOOSE = {"float32": 1e-4, "float64": 1e-12}


def check_update(update: Update, steps: int = 50) -> list[str]:
    """Raises AssertionError where `update` breaks a rule of optimisers; returns the machines that ran its formula.

    It must declare each scalar of its formula, and return the step and each state. The check trains for `steps`
    steps, on a valley and on a weight without gradient: weights and states must stay finite, and a second training
    must give the same bits. numba, and CUDA C++ if this machine has a compiler, must give NumPy's bits, also for
    NaN, infinities and denormals.
    """
    formula = _declared(update)
    first = _trained(update, steps)
    again = _trained(update, steps)
    for name, one, other in zip(("weights", *update.states), first, again, strict=True):
        _hold(update, np.isfinite(one).all(), f"not finite after {steps} steps: {name}")
        _hold(update, one.tobytes() == other.tobytes(), f"not the same bits when it is trained again: {name}")
    with tempfile.TemporaryDirectory() as folder:
        machines = {"numba": _numba(formula)} if find_spec("numba") else {}
        for room in ROOMS.values():
            machines |= room().machines(formula, Path(folder))
        for name, machine in machines.items():
            for dtype in ("float32", "float64") if name == "numba" else ("float32",):
                _beside_numpy(update, name, machine, dtype)
    return ["numpy", *machines]


def _hold(update: Update, rule: object, fault: str) -> None:
    if not rule:
        raise AssertionError(f"update {update.name!r}: {fault}")


def _declared(update: Update) -> Formula:
    if not isinstance(update, Update):
        raise AssertionError(f"update: must be an mpibow.optim.update.Update, got {type(update).__name__}")
    formula = update.formula
    scalars = update.scalars(update.lr, 1)
    arrays = formula.arrays
    names = formula.scalars
    states = update.states
    results = len(formula.results)
    _hold(update, len(arrays) >= 2, f"its formula takes {arrays}, must take a weight and its gradient")
    _hold(update, states == arrays[2:], f"states {states} are not its formula's arrays {arrays[2:]}")
    _hold(update, results == 1 + len(states), f"its formula gives {results} result(s), a step and {states} are due")
    _hold(update, len(scalars) == len(names), f"gives {len(scalars)} scalar(s), its formula takes {names}")
    for name, scalar in zip(names, scalars, strict=True):
        _hold(update, np.isfinite(scalar), f"scalar {name} is {scalar} at update 1")
    depends = scalars != update.scalars(update.lr, 2)
    _hold(update, update.counts or not depends, "scalars depend on the count, so `counts` must be True")
    still = replace(update, weight_decay=0.0).formula
    _hold(update, still == formula, "its formula depends on weight_decay, which may differ by weight")
    return formula


def _trained(update: Update, steps: int) -> list[Array]:
    """Weights and states, float64, after these steps; the last weight has no gradient."""
    w = np.random.default_rng(1).standard_normal(SIZE)
    states = [np.zeros(SIZE) for _ in update.states]
    steep = np.append(np.logspace(-2, 0, SIZE - 1), 0)
    for count in range(1, steps + 1):
        w += _by_numpy(update.formula, w, steep * w, states, update.scalars(update.lr, count))
    return [w, *states]


def _by_numpy(formula: Formula, w: Array, g: Array, states: list[Array], scalars: Sequence[float]) -> Array:
    u, *new = formula(w, g, *states, **dict(zip(formula.scalars, scalars, strict=True)))
    for state, values in zip(states, new, strict=True):
        state[...] = values
    return u


def hard(dtype: str, seed: int, size: int = SIZE) -> Array:
    """(size,) numbers of all magnitudes, with NaN, infinities, zeros and denormals among them."""
    generator = np.random.default_rng(seed)
    limits = np.finfo(dtype)
    with np.errstate(all="ignore"):
        x = (generator.standard_normal(size) * 10.0 ** generator.integers(-50, 40, size)).astype(dtype)
    x[::3] = generator.standard_normal(len(x[::3]))
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, limits.smallest_subnormal, -limits.smallest_subnormal]
    special += [limits.tiny, limits.max, limits.min, 1.0, -1.0, 1e-30, -1e-30]
    x[generator.permutation(size)[: size // 5]] = generator.choice(np.array(special, dtype), size // 5)
    return x


def _beside_numpy(update: Update, name: str, machine: Machine, dtype: str) -> None:
    formula = update.formula
    exact = update.formula.called.isdisjoint((*CURVES, "power"))
    w = hard(dtype, 0)
    g = hard(dtype, 1)
    expected, got = ([hard(dtype, 2 + i) for i in range(len(update.states))] for _ in range(2))
    for count in (1, 2, 3):
        scalars = update.scalars(update.lr, count)
        step = machine(w, g, got, scalars), _by_numpy(formula, w, g, expected, scalars)
        for what, one, other in [("step", *step), *zip(update.states, got, expected, strict=True)]:
            same = _same_bits(one, other) if exact else np.allclose(one, other, LOOSE[dtype], LOOSE[dtype], True)
            _hold(update, same, f"{what} of {name} in {dtype} is not NumPy's")


def _same_bits(one: Array, other: Array) -> bool:
    """Whether all bits are equal; NaN equals NaN with any payload."""
    first, second = (np.where(np.isnan(each), np.nan, each).tobytes() for each in (one, other))
    return first == second


NUMBA_LOOP = """
@_numba.njit(nogil=True, error_model="numpy")
def _loop(w, g, states, scalars, u):
    for j in range(len(w)):
        u[j] = step(w[j], g[j], states, j, scalars)
"""


def _numba(formula: Formula) -> Machine:
    module = ModuleType("update")
    exec(compile(numba_source.source(formula) + NUMBA_LOOP, "<update>", "exec"), module.__dict__)

    def run(w: Array, g: Array, states: list[Array], scalars: Sequence[float]) -> Array:
        u = w.copy()
        module._loop(w, g, tuple(states), tuple(map(w.dtype.type, scalars)), u)
        return u

    return run
