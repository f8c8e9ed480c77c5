"""Formulas as CUDA C++: a kernel each in one source, compiled for devices or run on the host."""

import os
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace

import numpy as np

from mpibow.cuda.kernels import formulas as cuda_source
from mpibow.formulas import Array, Formula
from tests.cuda.kernels.host import BUILT, Library, run
from tests.formulas.samples import CURVES, EXACT, LOGARITHMS
from tests.optim.test_table import ALL

FORMULAS = list(
    dict.fromkeys((*(formula for formula, _ in EXACT.values()), CURVES, LOGARITHMS, *(o.step for o in ALL.values())))
)
KERNEL = """
__global__ void formula_{i}(
    const float* w, const float* g, float* states, const float* scalars, float* u, long long size) {{
    using namespace f{i};
    for (long long j = threadIdx.x; j < size; j += blockDim.x) {{
        float own[STATES ? STATES : 1];
        for (int n = 0; n < STATES; n++) own[n] = states[n * size + j];
        u[j] = stepped(w[j], g[j], own, scalars);
        for (int n = 0; n < STATES; n++) states[n * size + j] = own[n];
    }}
}}
"""


def kernels() -> list[str]:
    return [f"formula_{i}" for i in range(len(FORMULAS))]


@cache
def text() -> str:
    """The source with a kernel for each of FORMULAS."""
    headers = (cuda_source.source(formula).replace("#pragma once", "") for formula in FORMULAS)
    return "".join(f"namespace f{i} {{\n{header}}}\n{KERNEL.format(i=i)}" for i, header in enumerate(headers))


@cache
def on_host() -> Library:
    path = BUILT / "formulas.cu"
    if not path.is_file() or path.read_text() != text():
        BUILT.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(text())
        os.replace(aside, path)
    return Library(path, kernels())


def cuda(formula: Formula, w: Array, g: Array, states: Sequence[Array], scalars: Sequence[float]) -> Array:
    """A machine of tests.formulas.machines; the formula must be one of FORMULAS."""
    kept, u = np.stack([*states, np.zeros_like(w)]), np.empty_like(w)  # one more, as there may be none
    numbers, size = np.array([*scalars, 0], "float32"), np.int64(len(w))
    kernel = f"formula_{FORMULAS.index(formula)}"
    arguments = (w, g, kept, numbers, u, size)
    launch = SimpleNamespace(kernel=kernel, grid=(1, 1, 1), block=(256, 1, 1), arguments=arguments)
    run(launch, within=on_host())
    for state, row in zip(states, kept, strict=False):
        state[...] = row
    return u
