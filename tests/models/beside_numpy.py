"""A whole net on the fastest kernels, as it is trained and evaluated there, against NumPy in float64."""

from collections.abc import Mapping

import numpy as np
import pytest

from mpibow.graph import Array, choose_layout, compile_plan, initial_weights
from mpibow.kernels import NUMPY, KernelSet, find_kernels
from mpibow.models import Build

FAST = find_kernels("auto", "float32", None)[0]
needs_onednn = pytest.mark.skipif(FAST is NUMPY, reason="oneDNN or numba is not there: pip install -e '.[cpu]'")


def results(
    build: Build, batch: int, inputs: Mapping[str, Array], weights: Mapping[str, Array], kernels: KernelSet, dtype: str,
    training: bool,
) -> dict[str, Array]:  # fmt: skip
    """Outputs; in training, moved statistics and gradients as well."""
    layout = choose_layout(build(batch, True), kernels, factors=True)
    plan = compile_plan(build(batch, training), layout, kernels, dtype, training=training)
    flat, statistics = layout.packed(weights, dtype), initial_weights(plan.statistics, 3, dtype)
    gradients = np.zeros_like(flat)
    bound = plan.bind(flat, gradients, statistics)
    for name, array in bound.inputs.items():
        array[...] = inputs[name]
    bound.run()
    found = {name: array.copy() for name, array in bound.outputs.items()}
    if training:
        found |= {f"running {name}": array for name, array in plan.statistics.unpacked(statistics).items()}
        found |= {f"gradient of {name}": array for name, array in layout.gradients(gradients).items()}
    return found


def compare(
    build: Build, batch: int, inputs: Mapping[str, Array], weights: Mapping[str, Array], training: bool,
    bounds: tuple[float, float], kernels: KernelSet = FAST,
) -> None:  # fmt: skip
    """`bounds` are of the norm of what is compared: of outputs and statistics, and of gradients."""
    fast = results(build, batch, inputs, weights, kernels, "float32", training)
    slow = results(build, batch, inputs, weights, NUMPY, "float64", training)
    assert fast.keys() == slow.keys()
    for key, expected in slow.items():
        bound = bounds[key.startswith("gradient")]
        size, off = np.linalg.norm(expected), np.linalg.norm(fast[key] - expected)
        assert off <= bound * size + 1e-6, (key, off / size)  # the latter where it is 0 but for rounding
