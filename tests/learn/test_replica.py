"""Replicas: rows of one block whose addresses never change."""

import numpy as np

from mpibow.learn.replica import Replicas


def filled(capacity: int = 4, count: int = 3) -> Replicas:
    replicas = Replicas(capacity, 5, "float32", states=("momenta",))
    replicas.resize(count)
    for value, rows in enumerate((replicas.weights, replicas.states["momenta"], replicas.gradients), 1):
        rows[...] = 10 * value + np.arange(count)[:, None]
    return replicas


def test_a_new_block_is_empty_and_zero():
    replicas = Replicas(4, 5, "float64", states=("momenta",))
    assert (replicas.count, replicas.capacity, replicas.weights.shape) == (0, 4, (0, 5))
    replicas.resize(4)
    for rows in (replicas.weights, replicas.states["momenta"], replicas.gradients):
        assert rows.shape == (4, 5)
        assert rows.dtype == np.float64
        assert not rows.any()


def test_a_row_is_what_a_plan_is_bound_to():
    replicas = filled()
    weights, gradients, _ = replicas.row(1)
    weights[0], gradients[1] = -1, -2
    assert replicas.weights[1].tolist() == [-1, 11, 11, 11, 11]
    assert replicas.gradients[1].tolist() == [31, -2, 31, 31, 31]


def test_addresses_outlive_resizing():
    replicas = filled(4, 1)
    rows = [replicas.row(i) for i in range(4)]
    for count in (3, 1, 4, 2):
        replicas.resize(count)
        assert (
            replicas.count
            == len(replicas.weights)
            == len(replicas.states["momenta"])
            == len(replicas.gradients)
            == count
        )
        for i in range(count):
            assert np.shares_memory(replicas.weights[i], rows[i][0])
            assert np.shares_memory(replicas.gradients[i], rows[i][1])


def test_growing_keeps_what_is_there_and_starts_momenta_at_0():
    replicas = filled(4, 3)
    replicas.resize(1)
    replicas.resize(4)
    assert replicas.weights[0, 0] == 10
    assert replicas.states["momenta"][:, 0].tolist() == [20, 0, 0, 0]  # those of dropped learners are forgotten


def test_reseed_touches_one_learner():
    replicas = filled()
    replicas.reseed(1, np.full(5, 7.0, np.float32))
    assert replicas.weights[:, 0].tolist() == [10, 7, 12]
    assert replicas.states["momenta"][:, 0].tolist() == [20, 0, 22]
    assert replicas.gradients[:, 0].tolist() == [30, 0, 32]


def counted(replicas: Replicas) -> list[tuple[int, int]]:
    return list(zip(replicas.updates[:, 0].tolist(), replicas.seen[:, 0].tolist(), strict=True))


def test_updates_are_counted_of_every_learner():
    replicas = filled()
    replicas.updates[:, 0], replicas.seen[:, 0] = (5, 6, 7), (40, 48, 56)
    replicas.reseed(1, np.zeros(5, np.float32))
    assert counted(replicas) == [(5, 40), (0, 0), (7, 56)]
    replicas.stepped(16)
    assert counted(replicas) == [(6, 56), (1, 16), (8, 72)]
    replicas.stood_still(2)
    assert counted(replicas) == [(6, 56), (1, 16), (7, 56)]
    replicas.resize(1)
    replicas.resize(3)
    assert counted(replicas) == [(6, 56), (0, 0), (0, 0)]
    replicas.level()
    assert counted(replicas) == [(6, 56)] * 3
    replicas.forget()
    assert counted(replicas) == [(0, 0)] * 3
