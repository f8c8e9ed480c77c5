"""The nets of examples/ on oneDNN, as they are trained and evaluated there, against NumPy in float64."""

import numpy as np
import pytest

from mpibow.graph import initial_weights, plan_layout
from tests.examples.cases import CASES
from tests.models.beside_numpy import compare, needs_onednn

pytestmark = needs_onednn

BOUNDS = (1e-5, 1e-4)
NORMED = {"unet": (1e-4, 1e-2), "squeeze_excite": (1e-4, 1e-2)}  # batch norm enlarges what is off, relu changes sides


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_numpy(name, training):
    case = CASES[name]
    plain = plan_layout(case.build(case.batch, True))
    flat = initial_weights(plain, 1, "float64")
    flat += 0.05 * np.random.default_rng(2).standard_normal(flat.size)  # no bias stays 0
    compare(case.build, case.batch, case.inputs, plain.unpacked(flat), training, NORMED.get(name, BOUNDS))
