"""Learners that are not kept together: each is plain SGD, and the centre is their mean when it is asked for."""

from typing import cast

import numpy as np
import pytest

from mpibow.kernels import FlatKernels, chunks_of
from mpibow.kernels.numpy import flat
from mpibow.learn.replica import Replicas
from mpibow.sync import Engine, caps
from mpibow.sync.family import Independent
from mpibow.sync.outbox import TAIL
from tests.run import tiny
from tests.stepping import ball_step, sgd

SIZE, LOCAL = 50, ball_step(0.1, 0.9, False, 0.01, 40)


def replicas(count: int) -> Replicas:
    rows = Replicas(8, SIZE, "float64", states=("momenta",))
    rows.resize(count)
    return rows


def kernels() -> FlatKernels:
    return cast(FlatKernels, flat)


def alone(array: np.ndarray) -> None:
    """What one rank's sums are over all ranks."""


def test_every_learner_is_plain_sgd():
    start = np.linspace(-1, 1, SIZE)
    rows = replicas(3)
    rule = Engine(Independent(), kernels(), rows, start.copy())
    rule.begin(3)
    generator = np.random.default_rng(0)
    w, v = np.tile(start, (3, 1)), np.zeros((3, SIZE))
    for _ in range(5):
        rows.gradients[...] = g = generator.standard_normal((3, SIZE))
        v, u = sgd(w, v, g, LOCAL)
        w = w + u
        rule.update(LOCAL)(chunks_of(SIZE, flat.chunk))
        rule.advance()
    np.testing.assert_allclose(rows.weights, w, rtol=1e-12)
    np.testing.assert_allclose(rows.states["momenta"], v, rtol=1e-12)
    assert np.array_equal(rule.centre, start)  # until somebody asks
    assert rule.set_mean(w.mean(axis=0), alone) == 0.0
    assert np.array_equal(rule.centre, w.mean(axis=0))


def test_ranks_talk_once_a_period_and_send_no_steps():
    rule = Engine(Independent(period=3), kernels(), replicas(2), np.zeros(SIZE))
    rule.begin(2)
    sent = []
    for _ in range(7):
        found = rule.outgoing()
        sent.append(0 if found is None else found.whole.size)
        rule.advance()
    assert sent == [0, 0, TAIL, 0, 0, TAIL, 0]


def test_who_is_there_goes_on_and_who_comes_starts_at_the_centre():
    rows = replicas(2)
    rule = Engine(Independent(), kernels(), rows, np.zeros(SIZE))
    rule.begin(2)
    rows.weights[...] = [[1.0], [3.0]]
    rule.set_mean(np.full(SIZE, 2.0), alone)
    rows.resize(3)
    rule.begin(3)
    assert rows.weights[:, 0].tolist() == [1.0, 3.0, 2.0]
    rows.resize(1)
    rule.begin(1)
    assert rows.weights[:, 0].tolist() == [1.0]


def test_any_number_of_learners():
    Independent().check(10**6)
    assert caps(Independent(), 2, 10**6) == ()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run(tmp_path, ranks):
    """It learns, all ranks have the mean of all learners, and one learner is what it is under any rule."""
    rule = tiny.RULES["independent"]
    found = tiny.run(tiny.job(tmp_path / "a", learners=2, rule=rule, stop={"epochs": 12}), ranks)
    assert (found.summary.accuracy or 0) > 0.9  # chance is a third
    alone = [tiny.run(tiny.job(tmp_path / name, rule={"name": name})).weights for name in ("independent", "ssgd")]
    assert tiny.same_bits(*alone)


def test_the_centre_is_the_mean_over_ranks(tmp_path):
    rule = tiny.RULES["independent"]
    stop = {"epochs": None, "iterations": 20}
    seen: dict[int, np.ndarray] = {}

    def last(session: object) -> None:
        if session.iteration == 20 - 1:  # type: ignore[attr-defined]
            seen[session.rank] = session.replicas.weights  # type: ignore[attr-defined]

    found = tiny.replay(tiny.job(tmp_path, learners=[2, 1], rule=rule, stop=stop), 2, before=last, settle=False)
    mean = (seen[0].sum(axis=0) + seen[1].sum(axis=0)) / 3
    stored = np.concatenate([array.ravel() for array in found[0].weights.values()])
    assert np.sort(stored[stored != 0]) == pytest.approx(np.sort(mean[mean != 0]), rel=1e-12)  # but for padding
