"""A step's formula as CUDA C++, compiled for GPUs and run by the host's compiler: what a check compares with NumPy."""

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mpibow.formulas import Array, Formula, Machine

from .device import libraries
from .kernels.compile import ARCHITECTURES, nvrtc
from .kernels.formulas import source

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


def machines(formula: Formula, folder: Path) -> Mapping[str, Machine]:
    """As mpibow.job.choice.Room has it: none where the host has no compiler. NVRTC compiles it where there is one."""
    text = source(formula)
    library = libraries.load("nvrtc")
    step = "__global__ void step(float* x) { x[0] = stepped(x[0], x[1], x + 2, x + 2 + STATES); }\n"
    for architecture in ARCHITECTURES if library else ():
        if nvrtc(str(library)).compile(text + step, {}, ["step"], architecture).usage["step"].spilled:
            raise AssertionError(f"{formula.name} needs more registers than a thread has on {architecture}")
    compiler = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    if compiler is None:
        return {}
    text = text.replace("#pragma once", "#include <cmath>\n#define __device__") + HOST_LOOP
    flags = ("-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-x", "c++")
    command = [compiler, *flags, "-", "-o", str(folder / "update.so")]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{compiler} does not compile {formula.name}: {done.stderr}")
    loop = ctypes.CDLL(str(folder / "update.so")).loop

    def run(w: Array, g: Array, states: list[Array], scalars: Sequence[float]) -> Array:
        kept, u, numbers = np.stack([*states, w]), np.empty_like(w), np.array([*scalars, 0], "float32")
        loop(*(ctypes.c_void_p(array.ctypes.data) for array in (w, g, kept, numbers, u)), ctypes.c_longlong(len(w)))
        for state, row in zip(states, kept, strict=False):
            state[...] = row
        return u

    return {"CUDA C++ on the host": run}
