"""SMA's pure functions: by hand, by what they conserve, and by their stability."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from mpibow.graph import Array
from mpibow.sync import Family
from mpibow.sync.gain import CERTAIN
from mpibow.sync.rule import Averaging, alpha_limit
from tests.sync.oracle import State, apply, end_period, restart, send, start

LAGGING = Averaging(k=2, alpha=0.5, mu=0.5, replicas="lagging")
PULLED = Averaging(k=2, alpha=0.5, gain=2.0)


def step(rule: Averaging, state: State, u: Any, rate: float = 1.0) -> State:
    """One iteration of a single rank that holds all learners; u is one number a learner."""
    steps = np.array(u, float).reshape(len(state.w), -1)
    state, total, squares = send(rule, state, steps)
    return apply(rule, state, total if rule.sends_at(state.turn) else None, squares, rate)


Numbers = tuple[list[float], float, float, float]


def numbers(state: State) -> Numbers:
    """w_i, W, z, z_prev of a state of size 1."""
    return state.w[:, 0].tolist(), float(state.mean[0]), float(state.centre[0]), float(state.previous[0])


def test_turns_by_hand():
    lagging, pulled = Averaging(k=2, period=2, replicas="lagging"), Averaging(k=2, period=2)
    assert [lagging.corrects(turn) for turn in range(4)] == [False, True, False, True]
    assert [lagging.sends_at(turn) for turn in range(4)] == [True, False, True, False]
    assert [pulled.corrects(turn) for turn in range(4)] == [True, False, True, False]
    assert [pulled.sends_at(turn) for turn in range(4)] == [False, True, False, True]
    assert [pulled.unfinished(turn) for turn in range(4)] == [False, True, False, True]


# From 0, each iteration's steps of the learners, and w_i, W, z and z_prev behind it.
BY_HAND: dict[str, tuple[Averaging, list[tuple[list[float], Numbers]]]] = {
    "lagging": (
        LAGGING,
        [
            ([1, 3], ([1, 3], 2, 0, 0)),  # all at 0: no correction
            ([1, 1], ([1.5, 2.5], 2, 2, 0)),  # c = 0.5 and 1.5; z moves by their sum, W by -0.5 (2 - 0) + 1
            ([0, 0], ([1.75, 2.25], 2, 3, 2)),  # c = -0.25 and 0.25; W = z; z by its momentum 0.5 (2 - 0)
            ([-1, 1], ([1.375, 3.625], 2.5, 2.5, 3)),  # c = -0.625 and -0.375; z = 3 - 1 + 0.5 (3 - 2)
        ],
    ),
    "lagging, period 2": (
        Averaging(k=2, alpha=0.5, period=2, replicas="lagging"),
        [
            ([1, 3], ([1, 3], 2, 0, 0)),
            ([1, 1], ([1.5, 2.5], 1, 2, 0)),  # on: c = 0.5 and 1.5; the steps are not yet in W
            ([0, 2], ([1.5, 4.5], 3, 2, 0)),  # off; the steps of two iterations are sent
            ([0, 0], ([1.75, 3.25], 2.5, 3, 2)),  # on: c = -0.25 and 1.25
        ],
    ),
    "pulled": (
        PULLED,
        [
            ([1, 3], ([3, 5], 4, 4, 4)),  # s = (2 - 1) 2 at once
            ([1, 1], ([5.5, 6.5], 6, 6, 6)),  # c = -0.5 and 0.5, s = 1
        ],
    ),
    "pulled, period 2": (
        Averaging(k=2, alpha=0.5, period=2, gain=2.0),
        [
            ([1, 3], ([1, 3], 0, 0, 0)),  # W stands still in the midst of a period
            ([1, 1], ([5, 7], 6, 6, 6)),  # D = 3, s = 3; the replicas are pulled right behind the exchange
            ([2, 0], ([7.5, 6.5], 6, 6, 6)),  # c = -0.5 and 0.5
        ],
    ),
    "reset": (
        Averaging(k=2, period=2, replicas="reset", gain=1.5),
        [
            ([1, 3], ([1, 3], 0, 0, 0)),
            ([1, 1], ([4.5, 4.5], 4.5, 4.5, 4.5)),  # D = 3
            ([2, 0], ([6.5, 4.5], 4.5, 4.5, 4.5)),
        ],
    ),
    "nesterov, as PyTorch's: v <- mu v + D, and the step is lr (D + mu v)": (
        Averaging(k=2, replicas="reset", outer="nesterov", lr=0.5, outer_momentum=0.5),
        [
            ([1, 3], ([1.5, 1.5], 1.5, 1.5, 1.5)),  # D = v = 2: 0.5 (2 + 1)
            ([4, 0], ([3.25, 3.25], 3.25, 3.25, 3.25)),  # D = 2, v = 3: 0.5 (2 + 1.5)
        ],
    ),
    "nesterov of one learner": (
        Averaging(k=1, period=2, replicas="reset", outer="nesterov", lr=0.5, outer_momentum=0.5),
        [([1], ([1], 0, 0, 0)), ([1], ([1.5], 1.5, 1.5, 1.5))],
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case):
    rule, steps = BY_HAND[case]
    state = start(np.zeros(1), rule.k)
    for u, expected in steps:
        state = step(rule, state, u)
        assert numbers(state) == expected


def test_a_period_that_ends_early_by_hand():
    reset = Averaging(k=2, period=5, replicas="reset", gain=1.5)
    state = step(reset, step(reset, start(np.zeros(1), 2), [1, 3]), [1, 1])
    state = end_period(reset, state, state.pending, 1.0)  # D = 3
    assert (*numbers(state), state.turn) == ([4.5, 4.5], 4.5, 4.5, 4.5, 0)
    assert end_period(reset, state, state.pending, 1.0) is state, "it is over"
    lagging = Averaging(k=2, alpha=0.25, mu=0.5, period=3, replicas="lagging")
    state = step(lagging, start(np.zeros(1), 2), [1, 3])
    state = end_period(lagging, state, state.pending, 1.0)  # W = 2; z by 2 alpha (2 - 0)
    assert (*numbers(state), state.turn) == ([1, 1], 1, 1, 1, 0)


def test_outer_momentum_by_hand():
    """SlowMo's velocity is of D / rate: where the rate is halved, so is what is left of older steps."""
    rule = Averaging(k=2, alpha=0.5, outer="momentum", lr=0.5, outer_momentum=0.5)
    state = step(rule, start(np.zeros(1), 2), [1, 3], rate=0.4)  # v = 2: W by 1, both replicas by 1 - 2 more
    assert numbers(state) == ([0, 2], 1, 1, 1)
    state = step(rule, state, [4, 0], rate=0.2)  # v = 0.5 2 / 2 + 2; c = -0.5 and 0.5
    assert state.velocity.tolist() == [2.5]
    assert numbers(state) == ([3.75, 0.75], 2.25, 2.25, 2.25)  # all of s = 1.25 - 2


@pytest.mark.parametrize(("wanted", "gain"), [(0.5, 1.0), (1.0, 1.0), (1.75, 1.75), (2.0, 2.0), (7.0, 2.0)])
def test_a_fixed_gain_is_held_between_1_and_k(wanted, gain):
    rule = Averaging(k=2, alpha=0.5, gain=wanted)
    state = step(rule, start(np.zeros(1), 2), [1, 3])
    assert state.gain == gain
    assert state.mean[0] == 2 * gain


def test_the_gain_used_is_that_of_before_this_iterations_sums():
    rule = Averaging(k=2, alpha=0.5, gain="measured")
    state = start(np.zeros(1), 2)
    generator = np.random.default_rng(0)
    gains = []
    for _ in range(40):
        state = step(rule, state, generator.standard_normal(2) + 0.1)
        gains.append(state.gain)
    assert len(set(gains)) == 40
    assert 1.0 < max(gains) < 1.0 + 40 / CERTAIN + 1e-12
    assert state.mean[0] == pytest.approx(state.w.mean(), rel=1e-12)


def test_restart_by_hand():
    rule = Averaging(k=2, alpha=0.5, mu=0.5, period=2, replicas="lagging")
    state = start(np.zeros(1), 2)
    for u in ([1, 3], [1, 1], [0, 2], [0, 0]):
        state = step(rule, state, u)
    assert (numbers(state)[2], numbers(state)[3], state.turn) == (4.0, 2.0, 4)
    state = step(rule, state, [0, 0])
    state = step(rule, state, [5, 5])  # on, and not sent
    assert state.pending.tolist() == [10]
    z = numbers(state)[2]
    state = restart(state)
    assert numbers(state) == ([z, z], z, z, z)
    assert (state.pending.tolist(), state.turn) == ([0], 0)
    state = step(rule, state, [1, -1])  # off, as the first iteration is
    assert numbers(state) == ([z + 1, z - 1], z, z, z)


@pytest.mark.parametrize(("restart", "dropped", "at"), [
    ("auto", False, False), ("auto", True, True), ("never", True, False),
    ((2.0, 3.0), False, True), ((2.5,), True, False), ((1.9, 2.1), False, False),
])  # fmt: skip
def test_when_replicas_restart(restart: Any, dropped, at):
    """At epoch 2, of which the iteration before has reached 1.9."""
    assert Family(restart=restart).restarts(1.9, 2.0, dropped) == at
    reset = Family(name="local_sgd", restart=restart)  # whose replicas restart anyway
    assert reset.restarts(1.9, 2.0, dropped) == (at and restart != "auto")


def test_restart_keeps_the_gain():
    state = step(replace(PULLED, gain="measured"), start(np.zeros(1), 2), [1, 3], rate=0.5)
    state = replace(state, gain=1.5)
    fresh = restart(state)
    assert (fresh.gain, fresh.averages) == (1.5, state.averages)
    # k / 1000 = 0.002 of mean |v|^2 = (1 + 9) / 2 / 0.25 and of |mean v|^2 = 4 / 0.25
    assert (fresh.averages.n1, fresh.averages.n2) == (pytest.approx(0.04), pytest.approx(0.032))
    assert fresh.averages.count == 1
    assert numbers(fresh) == ([2, 2], 2, 2, 2)


def test_restart_keeps_the_velocity():
    rule = Averaging(k=2, alpha=0.5, outer="momentum", outer_momentum=0.5)
    state = restart(step(rule, start(np.zeros(1), 2), [1, 3], rate=0.5))
    assert (state.velocity.tolist(), state.rate) == ([2], 0.5)


POINTS: tuple[dict[str, Any], ...] = (
    {"replicas": "lagging"}, {"gain": "measured"}, {"gain": 1.5}, {"gain": 3.0}, {"gain": "learners"},
    {"replicas": "reset"}, {"outer": "nesterov", "lr": 0.7, "outer_momentum": 0.8},
    {"replicas": "reset", "outer": "momentum", "lr": 0.5, "outer_momentum": 0.6},
)  # fmt: skip
OPTIONS = [
    Averaging(k, alpha, mu, period, **point)
    for k, (alpha, mu), period, point in product((1, 2, 5), ((0.2, 0.0), (0.15, 0.9)), (1, 2, 3), POINTS)
]


def option(rule: Averaging) -> str:
    return f"{rule.k}-{rule.alpha}-{rule.mu}-{rule.period}-{rule.replicas}-{rule.outer}-{rule.gain}"


@pytest.mark.parametrize("rule", OPTIONS, ids=option)
def test_the_mean_of_the_replicas_is_followed(rule: Averaging):
    """W, though made of sums of steps alone, is the replicas' mean wherever all steps have been sent."""
    generator = np.random.default_rng(0)
    state = start(generator.standard_normal(3), rule.k)
    sent = 0
    for t in range(60):
        noise = generator.standard_normal((rule.k, 3))
        state = step(rule, state, -0.1 * (state.w - 1 + 3 * noise), rate=0.1)
        np.testing.assert_allclose(state.w.mean(axis=0), state.mean + state.pending / rule.k, rtol=1e-11, atol=1e-12)
        sent += not state.pending.any()
        if rule.replicas != "lagging" and sent:
            assert state.centre is state.mean
        if rule.corrects(t + 1):
            assert not state.pending.any(), "W is read now"
    assert sent == (60 if rule.plain or rule.period == 1 else 60 // rule.period)


@pytest.mark.parametrize("rule", OPTIONS, ids=option)
def test_agreement_is_a_fixed_point(rule: Averaging):
    z = np.random.default_rng(0).standard_normal(4)
    state = start(z, rule.k)
    for _ in range(7):
        state = step(rule, state, np.zeros((rule.k, 4)))
    for row in (*state.w, state.mean, state.centre):
        np.testing.assert_array_equal(row, z)


@pytest.mark.parametrize("alpha", [0.05, 0.3])
@pytest.mark.parametrize("period", [1, 2])
def test_ea_sgd_conserves_replicas_and_centre(alpha, period):
    """Without momentum what leaves the replicas arrives at the centre: z + sum w_i changes by the steps alone."""
    rule = Averaging(k=4, alpha=alpha, period=period, replicas="lagging")
    generator = np.random.default_rng(0)
    state = start(np.ones(3), 4)
    whole = state.centre + state.w.sum(axis=0)
    for _ in range(50):
        u = generator.standard_normal((4, 3))
        state = step(rule, state, u)
        whole += u.sum(axis=0)
        np.testing.assert_allclose(state.centre + state.w.sum(axis=0), whole, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.1, 1.0, 1.9])
def test_pulling_to_the_mean_conserves_the_mean(alpha):
    rule = Averaging(k=4, alpha=alpha)
    state = start(np.zeros(3), 4)
    state = step(rule, state, np.random.default_rng(0).standard_normal((4, 3)))
    mean, spread = state.mean, state.w - state.mean
    for t in range(1, 6):
        state = step(rule, state, np.zeros((4, 3)))
        np.testing.assert_array_equal(state.mean, mean)
        np.testing.assert_allclose(state.w - mean, (1 - alpha) ** t * spread, rtol=1e-9, atol=1e-14)


def radius(k: int, alpha: float, mu: float, lagging: bool) -> float:
    """The largest factor by which an iteration without steps stretches what keeps w_i, z and z_prev apart."""
    rule = Averaging(k, alpha, mu, replicas="lagging" if lagging else "pulled")
    columns = []
    for basis in np.eye(k + 2):
        w, z, previous = basis[:k, None], basis[k : k + 1], basis[k + 1 :]
        zero, mean = np.zeros(1), w.mean(axis=0)
        state = State(w, mean, z if lagging else mean, previous if lagging else mean, zero, zero)
        state = step(rule, state, np.zeros(k))
        columns.append([*state.w[:, 0], *state.centre, *state.previous])
    matrix = np.array(columns).T
    if not lagging:
        matrix = matrix[:k, :k]  # z is W, nothing of its own
    size = len(matrix)
    apart = np.eye(size) - np.full((size, size), 1.0 / size)  # all equal is kept for ever: leave it out
    return float(np.abs(np.linalg.eigvals(apart @ matrix)).max())


@pytest.mark.parametrize("mu", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("k", [2, 3, 5, 16])
def test_alpha_limit(k, mu):
    for lagging in (True, False):
        limit = alpha_limit(k, mu, lagging)
        assert radius(k, 0.99 * limit, mu, lagging) < 1 - 1e-4
        assert radius(k, 1.01 * limit, mu, lagging) > 1 + 1e-4


def test_alpha_limit_by_hand():
    assert alpha_limit(3, 0.0, lagging=True) == 0.5  # 2 / (k + 1)
    assert alpha_limit(2, 0.5, lagging=True) == pytest.approx(3 / 3.5)
    assert alpha_limit(16, 0.9, lagging=False) == 2.0
    assert alpha_limit(1, 0.9, lagging=True) == pytest.approx(3.8 / 2.9)


@pytest.mark.parametrize("mu", [0.0, 0.9])
@pytest.mark.parametrize("k", [2, 3, 8, 100])
def test_the_default_alpha_is_stable(k, mu):
    assert 1 / k < alpha_limit(k, mu, lagging=True)


def test_nothing_is_changed_in_place():
    rule = LAGGING
    state = step(rule, start(np.zeros(1), 2), [1, 3])
    before = numbers(state)
    u: Array = np.array([[1.0], [2.0]])
    sent, total, _ = send(rule, state, u)
    apply(rule, sent, total, 0.0, 1.0)
    assert numbers(state) == before
    assert u.tolist() == [[1], [2]]
