"""SGD's formula beside the local update as a pure function, and its settings."""

from __future__ import annotations

import numpy as np
import pytest

from mpibow.errors import ConfigError
from mpibow.optim.sgd import Sgd
from tests.stepping import sgd, sgd_step


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_the_formula_is_the_pure_function(momentum: float, nesterov: bool, decay: float) -> None:
    nesterov = nesterov and momentum > 0
    update = Sgd(lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    w, g, v = np.random.default_rng(0).standard_normal((3, 100))
    after, u = sgd(w, v, g, sgd_step(0.07, momentum, nesterov, decay))
    assert update.states == (("momenta",) if momentum else ())
    assert not update.counts
    step, *states = update.formula(
        w, g, *[v] * len(update.states), **dict(zip(update.formula.scalars, update.scalars(0.07, 1), strict=True))
    )
    np.testing.assert_array_equal(step, u)
    for state in states:
        np.testing.assert_array_equal(state, after)


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(ConfigError, match=r"^nesterov: needs momentum above 0, got momentum 0$"):
        Sgd(nesterov=True)
