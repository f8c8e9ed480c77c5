"""The check of an optimiser: its declaration, its numbers, and every machine beside NumPy."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mpibow.cuda.device import libraries
from mpibow.cuda.kernels import formulas as cuda_source
from mpibow.cuda.kernels.compile import ARCHITECTURES, nvrtc
from mpibow.formulas import numba_source
from mpibow.formulas.formula import Array, Formula
from mpibow.optim.update import Update

SIZE = 1003  # no multiple of a vector's lanes
CURVES = {
    "exp",
    "log",
    "log1p",
    "power",
    "tanh",
    "erf",
}  # each machine's own, within 4 ulp; a formula of them may be less exact
LOOSE = {"float32": 1e-4, "float64": 1e-12}

Machine = Callable[[Array, Array, list[Array], Sequence[float]], Array]  # (w, g, states, scalars) -> u


def check_update(update: Update, steps: int = 50) -> list[str]:
    """Raises AssertionError where `update` breaks a rule of optimisers; returns the machines that ran its formula.

    It must declare each scalar of its formula, and return the step and each state. The check trains for `steps`
    steps, on a valley and on a weight without gradient: weights and states must stay finite, and a second training
    must give the same bits. numba, and CUDA C++ if this machine has a compiler, must give NumPy's bits, also for
    NaN, infinities and denormals.
    """
    formula = _declared(update)
    first, again = _trained(update, steps), _trained(update, steps)
    for name, one, other in zip(("weights", *update.states), first, again, strict=True):
        _hold(update, np.isfinite(one).all(), f"not finite after {steps} steps: {name}")
        _hold(update, one.tobytes() == other.tobytes(), f"not the same bits when it is trained again: {name}")
    _compiled_for_devices(update, formula)
    with tempfile.TemporaryDirectory() as folder:
        found = {**_numba(formula), **_cuda_on_host(formula, Path(folder))}
        for name, (machine, dtypes) in found.items():
            for dtype in dtypes:
                _beside_numpy(update, name, machine, dtype)
    return ["numpy", *found]


def _hold(update: Update, rule: Any, fault: str) -> None:
    if not rule:
        raise AssertionError(f"update {update.name!r}: {fault}")


def _declared(update: Update) -> Formula:
    if not isinstance(update, Update):
        raise AssertionError(f"update: must be an mpibow.optim.update.Update, got {type(update).__name__}")
    formula, scalars = update.formula, update.scalars(update.lr, 1)
    arrays, names, states, results = formula.arrays, formula.scalars, update.states, len(formula.results)
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
    generator, limits = np.random.default_rng(seed), np.finfo(dtype)
    with np.errstate(all="ignore"):
        x = (generator.standard_normal(size) * 10.0 ** generator.integers(-50, 40, size)).astype(dtype)
    x[::3] = generator.standard_normal(len(x[::3]))
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, limits.smallest_subnormal, -limits.smallest_subnormal]
    special += [limits.tiny, limits.max, limits.min, 1.0, -1.0, 1e-30, -1e-30]
    x[generator.permutation(size)[: size // 5]] = generator.choice(np.array(special, dtype), size // 5)
    return x


def _beside_numpy(update: Update, name: str, machine: Machine, dtype: str) -> None:
    formula, exact = update.formula, not CURVES & update.formula.called
    w, g = hard(dtype, 0), hard(dtype, 1)
    expected, got = ([hard(dtype, 2 + i) for i in range(len(update.states))] for _ in range(2))
    for count in (1, 2, 3):
        scalars = update.scalars(update.lr, count)
        step = machine(w, g, got, scalars), _by_numpy(formula, w, g, expected, scalars)
        for what, one, other in [("step", *step), *zip(update.states, got, expected, strict=True)]:
            same = _same_bits(one, other) if exact else np.allclose(one, other, LOOSE[dtype], LOOSE[dtype], True)
            _hold(update, same, f"{what} of {name} in {dtype} is not NumPy's")


def _same_bits(one: Array, other: Array) -> bool:
    """Whether all bits are equal; NaN equals NaN with any payload."""
    known, bits = ~np.isnan(other), f"i{other.itemsize}"
    return bool(
        np.array_equal(~np.isnan(one), known) and np.array_equal(one[known].view(bits), other[known].view(bits))
    )


NUMBA_LOOP = """
@_numba.njit(nogil=True, error_model="numpy")
def _loop(w, g, states, scalars, u):
    for j in range(len(w)):
        u[j] = step(w[j], g[j], states, j, scalars)
"""


def _numba(formula: Formula) -> Mapping[str, tuple[Machine, Sequence[str]]]:
    if find_spec("numba") is None:
        return {}
    module = ModuleType("update")
    exec(compile(numba_source.source(formula) + NUMBA_LOOP, "<update>", "exec"), module.__dict__)

    def run(w: Array, g: Array, states: list[Array], scalars: Sequence[float]) -> Array:
        u = w.copy()
        module._loop(w, g, tuple(states), tuple(map(w.dtype.type, scalars)), u)
        return u

    return {"numba": (run, ("float32", "float64"))}


HOST_LOOP = """
extern "C" void loop(
    const float* w, const float* g, float* states, const float* scalars, float* u, long long size) {
    for (long long j = 0; j < size; j++) {
        float own[STATES ? STATES : 1];
        for (int n = 0; n < STATES; n++) own[n] = states[n * size + j];
        u[j] = stepped(w[j], g[j], own, scalars);
        for (int n = 0; n < STATES; n++) states[n * size + j] = own[n];
    }
}
"""


def _cuda_on_host(formula: Formula, folder: Path) -> Mapping[str, tuple[Machine, Sequence[str]]]:
    compiler = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None)
    if compiler is None:
        return {}
    text = cuda_source.source(formula).replace("#pragma once", "#include <cmath>\n#define __device__") + HOST_LOOP
    flags = ("-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-x", "c++")
    command = [compiler, *flags, "-", "-o", str(folder / "update.so")]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{compiler} does not compile {formula.name}: {done.stderr}")
    loop = ctypes.CDLL(str(folder / "update.so")).loop

    def run(w: Array, g: Array, states: list[Array], scalars: Sequence[float]) -> Array:
        kept, u, numbers = np.stack([*states, w]), np.empty_like(w), np.array([*scalars, 0], "float32")
        addresses = (ctypes.c_void_p(array.ctypes.data) for array in (w, g, kept, numbers, u))
        loop(*addresses, ctypes.c_longlong(len(w)))
        for state, row in zip(states, kept, strict=False):
            state[...] = row
        return u

    return {"CUDA C++ on the host": (run, ("float32",))}


def _compiled_for_devices(update: Update, formula: Formula) -> None:
    """Compiles by NVRTC, where there is one. Raises DeviceError with the compiler's message."""
    found = libraries.load("nvrtc")
    text = "__global__ void step(float* x) { x[0] = stepped(x[0], x[1], x + 2, x + 2 + STATES); }\n"
    for architecture in ARCHITECTURES if found else ():
        usage = nvrtc(str(found)).compile(cuda_source.source(formula) + text, {}, ["step"], architecture).usage["step"]
        _hold(update, not usage.spilled, f"its formula needs more registers than a thread has on {architecture}")
