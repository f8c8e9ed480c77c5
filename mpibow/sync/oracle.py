"""The oracle: model averaging as pure functions, which the rules in place are tested against.

`send` gives one flat array, `apply` takes what was received.

Crossbow, PVLDB 12(11) 2019, algorithm 1; the gain is AdaScale's (Johnson et al., arXiv:2007.05105, section 3).
k learners over all ranks, this rank's as rows. All names on a formula's right are values at the iteration's start:

    on       every period-th iteration since start or restart
    lagging  (gain none)  c_i = alpha (w_i - z) if on      w_i <- w_i + u_i - c_i
             z, z_prev <- z + k alpha (W - z) + mu (z - z_prev), z if on
             W <- W + mean(u) - alpha (W - z) if on, else W + mean(u)
    pulled   (gain)       c_i = alpha (w_i - W) if on      w_i <- w_i + u_i - c_i + s      W <- W + mean(u) + s, z = W
             s = (G - 1) mean(u), G as known before, u of the iteration before (delay 1), or of this one (delay 0)
    common orthogonal     of every matrix V of mean(u) s = min(k - 1, (G - 1) reach) |V| O / |O|, O the orthogonal
             matrix nearest to V by Newton-Schulz iterations, which is Muon's step (Jordan et al., 2024), of all else
             (G - 1) mean(u); delay 0. V lies mostly in the sharpest directions, which bound its length; spread evenly
             it may be as long as k steps in a row would be. `reach` (mpibow.sync.orthogonal) is to keep it within
             G - 1 times V's strongest direction; where that binds, 1.2 to 1.9 times as much was measured.

One learner has nothing to be pulled to: it is plain SGD and z = w.

The default takes the orthogonal step from four learners on: the optimiser changes there, while one learner is plain
SGD. The step and the number four were chosen on the cells of benchmarks/results/sma.md, which therefore do not test
them; that page has their epochs and accuracies, with standard errors and the number of seeds. With two learners both
common steps need as many epochs there, within the error, and the mean step costs less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from mpibow.graph.graph import Array
from mpibow.sync.averaging import Averaging
from mpibow.sync.gain import Averages, follow, noise_gain


@dataclass(frozen=True)
class State:
    """All that the next iteration reads: replicas w (local k, size); W, z, z_prev, pending and common steps (size,)."""

    w: Array
    mean: Array
    centre: Array
    previous: Array
    pending: Array  # sum of this rank's steps since the last all-reduce
    common: Array  # mean(u) of the iteration before
    averages: Averages = field(default_factory=Averages)
    gain: float = 1.0
    turn: int = 0


def start(z: Array, rows: int) -> State:
    """Every replica and mean at z."""
    zero = np.zeros_like(z)
    return State(np.tile(z, (rows, 1)), z.copy(), z.copy(), z.copy(), zero, zero)


def send(rule: Averaging, state: State, u: Array) -> tuple[State, Array, float]:
    """The rank's replicas after local steps u (local k, size); what to all-reduce: summed steps and sum |u_i|^2."""
    w = state.w + u
    if rule.on(state.turn):
        w = w - rule.correction * (state.w - (state.mean if rule.pulled else state.centre))
    if rule.gain is not None and rule.delay == 1:
        w = w + (rule.used(state.gain) - 1.0) * state.common
    state = replace(state, w=w, pending=state.pending + u.sum(axis=0))
    return state, state.pending, float((u * u).sum())


def apply(
    rule: Averaging, state: State, received: Array | None, squares: float, rate: float,
    spread: Callable[[Array, float, float], Array] | None = None,
) -> State:  # fmt: skip
    """W, z and z_prev after this iteration, from the sums over all ranks (None where this iteration sends nothing)."""
    mean, centre, previous, w = state.mean, state.centre, state.previous, state.w
    if rule.on(state.turn) and not rule.pulled:
        gap = mean - centre
        centre, previous = centre + rule.k * rule.alpha * gap + rule.mu * (centre - previous), centre
        mean = mean - rule.alpha * gap
    common, averages, gain, pending = state.common, state.averages, state.gain, state.pending
    if received is not None:
        u = received / rule.k
        pending = np.zeros_like(pending)
        mean = mean + u
        if rule.gain is not None:
            extra = rule.used(gain) - 1.0
            if rule.orthogonal:
                assert spread is not None
                step = spread(u, extra, rule.even - 1.0)
            else:
                step = extra * (common if rule.delay == 1 else u)
            mean = mean + step
            if rule.delay == 0:
                w = w + step
            if rule.gain == "auto":
                averages = follow(averages, rule.k, squares / rule.k, float(u @ u), rate)
            gain, common = rule.used(noise_gain(averages, rule.k)), u
    if rule.pulled:
        centre = previous = mean
    return State(w, mean, centre, previous, pending, common, averages, gain, state.turn + 1)


def restart(state: State) -> State:
    """w_i = W = z_prev = z; the period's counter and the pending steps are 0; the gain's averages stay."""
    fresh = start(state.centre, len(state.w))
    return replace(fresh, averages=state.averages, gain=state.gain)
