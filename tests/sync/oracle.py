"""The oracle: model averaging as pure functions, which the rules in place are tested against.

`send` gives one flat array, `apply` takes what was received.

Crossbow, PVLDB 12(11) 2019, algorithm 1; the gain is AdaScale's (Johnson et al., arXiv:2007.05105, section 3).
k learners over all ranks, this rank's as rows. All names on a formula's right are values at the iteration's start:

    D        the mean over learners of their steps since the last exchange; mean(u) at period 1
    lagging  c_i = alpha (w_i - z), in the last iteration of a period           w_i <- w_i + u_i - c_i
             z, z_prev <- z + k alpha (W - z) + mu (z - z_prev), z              then too
             W <- W + D, at the next exchange, and - alpha (W - z) where c_i are
    pulled   c_i = alpha (w_i - W), in the first iteration of a period          w_i <- w_i + u_i - c_i
             W <- W + outer(D), w_i <- w_i + outer(D) - D at the exchange, which ends a period; z = W
    reset    w_i <- w_i + u_i;  W <- W + outer(D), w_i <- W at the exchange; z = W

    outer    mean        G D, with G as known before
             momentum, nesterov  as mpibow.sync.rule_formulas has them

One learner has nothing to be pulled to: with mean it is its optimiser alone, and z = w.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from mpibow.graph import Array
from mpibow.sync.gain import Averages, follow, noise_gain
from mpibow.sync.rule import Averaging


@dataclass(frozen=True)
class State:
    """All that the next iteration reads: replicas w (local k, size); W, z, z_prev, unsent steps, velocity (size,)."""

    w: Array
    mean: Array
    centre: Array
    previous: Array
    pending: Array  # sum of this rank's steps since the last all-reduce
    velocity: Array
    averages: Averages = field(default_factory=Averages)
    gain: float = 1.0
    rate: float = 0.0  # at the last exchange
    turn: int = 0


def start(z: Array, rows: int) -> State:
    """Every replica and mean at z."""
    zero = np.zeros_like(z)
    return State(np.tile(z, (rows, 1)), z.copy(), z.copy(), z.copy(), zero, zero)


def send(rule: Averaging, state: State, u: Array) -> tuple[State, Array, float]:
    """The rank's replicas after local steps u (local k, size); what to all-reduce: summed steps and sum |u_i|^2."""
    w = state.w + u
    if rule.corrects(state.turn):
        w = w - rule.correction * (state.w - (state.centre if _lags(rule) else state.mean))
    state = replace(state, w=w, pending=state.pending + u.sum(axis=0))
    return state, state.pending, float((u * u).sum())


def apply(rule: Averaging, state: State, received: Array | None, squares: float, rate: float) -> State:
    """All after this iteration, from the sums over all ranks (None where this iteration sends nothing)."""
    state = replace(state, turn=state.turn + 1)
    if _lags(rule) and rule.corrects(state.turn - 1):
        gap, momentum = state.mean - state.centre, rule.mu * (state.centre - state.previous)
        state = replace(
            state, mean=state.mean - rule.alpha * gap, previous=state.centre,
            centre=state.centre + rule.k * rule.alpha * gap + momentum,
        )  # fmt: skip
    if received is None:
        return state
    d = received / rule.k
    state = replace(state, pending=np.zeros_like(state.pending))
    if _lags(rule):
        return replace(state, mean=state.mean + d)
    state, step = outer(rule, state, d, rate)
    mean = state.mean + step
    w = np.tile(mean, (len(state.w), 1)) if rule.replicas == "reset" else state.w + (step - d)
    averages = state.averages
    if rule.gain == "measured":
        averages = follow(averages, rule.k, squares / rule.k, float(d @ d), rate)
    gain = rule.used(noise_gain(averages, rule.k))
    return replace(state, w=w, mean=mean, centre=mean, previous=mean, averages=averages, gain=gain)


def end_period(rule: Averaging, state: State, received: Array, rate: float) -> State:
    """All after a period that ends early: the ranks' pending steps are received, corrections made, and all restarts."""
    if not rule.unfinished(state.turn):
        return state
    if _lags(rule):
        rule = replace(rule, period=2)
        state = apply(rule, apply(rule, replace(state, turn=0), received, 0.0, rate), None, 0.0, rate)
    else:
        rule = replace(rule, period=state.turn % rule.period)
        state = apply(rule, replace(state, turn=rule.period - 1), received, 0.0, rate)
    return restart(state)


def outer(rule: Averaging, state: State, d: Array, rate: float) -> tuple[State, Array]:
    """outer(D), and the state with the velocity that it leaves."""
    if rule.outer == "mean":
        return state, d + (rule.used(state.gain) - 1.0) * d
    turned = rate / state.rate if rule.outer == "momentum" and state.rate else 1.0
    v = rule.outer_momentum * turned * state.velocity + d
    step = rule.lr * (d + rule.outer_momentum * v) if rule.outer == "nesterov" else rule.lr * v
    return replace(state, velocity=v, rate=rate), step


def restart(state: State) -> State:
    """w_i = W = z_prev = z; the period's counter and the pending steps are 0; gain and velocity stay."""
    fresh = start(state.centre, len(state.w))
    return replace(fresh, averages=state.averages, gain=state.gain, velocity=state.velocity, rate=state.rate)


def _lags(rule: Averaging) -> bool:
    return rule.replicas == "lagging" and not rule.plain
