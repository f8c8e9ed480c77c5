"""The nets of examples/ on oneDNN, as they are trained and evaluated there, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from mpibow.data.dataset import Array
from mpibow.graph.layout import initial_weights, plan_layout
from mpibow.graph.plan import choose_layout, compile_plan
from mpibow.kernels import NUMPY, KernelSet, find_kernels
from tests.examples.cases import CASES, Case

FAST = find_kernels("auto", "float32", None)[0]
pytestmark = pytest.mark.skipif(FAST is NUMPY, reason="oneDNN or numba is not there: pip install -e '.[cpu]'")

BOUNDS = (1e-5, 1e-4)  # of the norm of what is compared: outputs and statistics, gradients
NORMED = {"unet": (1e-4, 1e-2), "squeeze_excite": (1e-4, 1e-2)}  # batch norm enlarges what is off, relu changes sides


def results(case: Case, kernels: KernelSet, dtype: str, training: bool) -> dict[str, Array]:
    layout = choose_layout(case.build(case.batch, True), kernels, factors=True)
    plan = compile_plan(case.build(case.batch, training), layout, kernels, dtype, training=training)
    plain = plan_layout(case.build(case.batch, True))
    flat = initial_weights(plain, 1, "float64")
    flat += 0.05 * np.random.default_rng(2).standard_normal(flat.size)  # no bias stays 0
    weights, statistics = layout.packed(plain.unpacked(flat), dtype), initial_weights(plan.statistics, 3, dtype)
    gradients = np.zeros_like(weights)
    bound = plan.bind(weights, gradients, statistics)
    for name, array in case.inputs.items():
        bound.inputs[name][...] = array
    bound.run()
    found = {name: array.copy() for name, array in bound.outputs.items()}
    if training:
        found |= {f"running {name}": array for name, array in plan.statistics.unpacked(statistics).items()}
        found |= {f"gradient of {name}": array for name, array in layout.gradients(gradients).items()}
    return found


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_numpy(name: str, training: bool) -> None:
    fast, slow = results(CASES[name], FAST, "float32", training), results(CASES[name], NUMPY, "float64", training)
    assert fast.keys() == slow.keys()
    outputs, gradients = NORMED.get(name, BOUNDS)
    for key, expected in slow.items():
        bound = gradients if key.startswith("gradient") else outputs
        size, off = np.linalg.norm(expected), np.linalg.norm(fast[key] - expected)
        assert off <= bound * size + 1e-6, (key, off / size)  # the latter where it is 0 but for rounding
