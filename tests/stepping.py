"""Local steps for tests, and what SGD's come to as a pure function."""

from dataclasses import replace

import numpy as np

from mpibow.formulas import formula
from mpibow.graph import Array
from mpibow.kernels import Local, States
from mpibow.optim import Sgd, Update, sgd as steps
from tests.optim.stepping import scalars_of

ROWS, END = 16, 1 << 40  # more than tests have: passes look at the rows and elements that there are


def local_of(update: Update, decayed: int = END, count: int = 1) -> Local:
    """The step of `update`; elements from `decayed` on do not decay. All rows' states are at update number `count`."""
    alike = update, replace(update, weight_decay=0.0)

    def numbers(rate: float) -> Array:
        return np.array([[scalars_of(each, rate, count) for each in alike]] * ROWS)

    return Local(update.step, float(update.lr), *_spans(decayed), numbers)


def _spans(decayed: int) -> tuple[Array, Array]:
    ends, groups = ([decayed, END], [0, 1]) if 0 < decayed < END else ([END], [0 if decayed else 1])
    return np.array(ends), np.array(groups)


def sgd_step(
    rate: float, momentum: float = 0.0, nesterov: bool = False, decay: float = 0.0, decayed: int = END
) -> Local:
    update = Sgd(lr=rate, momentum=momentum, nesterov=nesterov and momentum > 0, weight_decay=decay)
    return local_of(update, decayed)


def ball_step(
    rate: float, momentum: float = 0.0, nesterov: bool = False, decay: float = 0.0, decayed: int = END
) -> Local:  # fmt: skip
    """As `sgd_step`, and momenta are kept where the momentum is 0, too: for replicas that have them."""

    def numbers(rate: float) -> Array:
        return np.array([[(rate, each, momentum) for each in (decay, 0.0)]] * ROWS)

    return Local(formula(steps.nesterov if nesterov else steps.heavy_ball), rate, *_spans(decayed), numbers)


def kept(local: Local, *states: Array) -> States:
    """The first of `states`, as many as the step keeps."""
    return states[: len(local.formula.arrays) - 2]


def sgd(w: Array, v: Array, g: Array, local: Local) -> tuple[Array, Array]:
    """(v', u): momentum and step from weights, momentum and gradient, each (..., size).

    g' = g + d w on the first elements      v' = m v + g'
    u  = -rate v', or with Nesterov's momentum -rate (g' + m v')    (Sutskever et al., ICML 2013, as PyTorch writes it)
    """
    first = dict(zip(local.formula.scalars, local.scalars[0, 0].tolist(), strict=True))
    decayed = local.ends[0] if local.groups[0] == 0 else 0
    g = g.copy()
    g[..., :decayed] += first["decay"] * w[..., :decayed]
    if "momentum" not in first:
        return v, -local.rate * g
    momentum = first["momentum"]
    v = momentum * v + g
    return v, -local.rate * (g + momentum * v if local.formula.name == "nesterov" else v)
