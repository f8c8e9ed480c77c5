"""Which buckets are updated ahead of the learners' end."""

import numpy as np
import pytest

from mpibow.kernels.compiled import buckets
from mpibow.kernels.compiled.buckets import APPLIED, ENDED, FREE, HOLD, SUMMED, TURN, WRITTEN
from mpibow.kernels.compiled.command import together
from mpibow.system.process import address

FINE = np.ones(3, np.float32)
SPANS = np.array([(0, 0, 1), (1, 1, 3), (2, 3, 4)])


def exchange(losses=FINE, reached=9, hold=False, **gradients) -> np.ndarray:
    """The words of an exchange of three buckets, two ahead, whose words of two learners are looked at once."""
    words, dtype = np.array([0, 0, FREE, 7]), losses.dtype
    rows = np.ones((2, 6), dtype)
    for name, value in gradients.items():
        rows[1, int(name[1:])] = value
    each = np.array([(x.ctypes.data, x.nbytes // 4, x.itemsize // 4) for x in (np.ones(4, dtype), losses)])
    extents, goals = np.array([(0, 0, 2), (1, 2, 5)]), np.array([1, 2])
    if hold:
        assert buckets.hold(words)
    buckets.update(
        rows, words, goals, np.array([[9, 0], [reached, 0]]), SPANS, together([]).table, each, extents,
        np.zeros((3, 4), np.int64), address("clock_gettime"),
    )  # fmt: skip
    assert buckets.hold(words)
    return words


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("case", "updated"),
    [
        ({}, 2),
        ({"reached": 0}, 0),
        ({"reached": 1}, 1),
        ({"hold": True}, 0),
        ({"losses": [1, np.nan, 1]}, 0),
        ({"losses": [1, 1, -np.inf]}, 0),
        ({"g1": np.nan}, 0),
        ({"g4": np.inf}, 1),
        ({"g2": 1e17}, 1),  # its square is finite in float64 alone
        ({"g5": np.nan}, 2),  # of the bucket that is not ahead
    ],
)
def test_a_bucket_is_updated_that_all_have_ended_and_that_is_finite(case, updated, dtype):
    words = exchange(**{**case, "losses": np.array(case.get("losses", FINE), dtype)})
    assert words.tolist() == [updated, 0, ENDED, 7]


def test_a_bucket_that_is_summed_opens_its_stages():
    words, opened, times = np.array([3, 1, ENDED, 7]), np.zeros((4, 2), np.int64), np.zeros((3, 4), np.int64)
    stages = np.array([(0, 0), (1, 2), (1, 3), (2, 1)])
    buckets.apply(words, SPANS, together([]).table, stages, opened, times, address("clock_gettime"))
    assert opened.tolist() == [[0, 0], [0, 0], [7, 0], [7, 0]]
    assert times[:, APPLIED].astype(bool).tolist() == [False, True, False]
    assert (WRITTEN, SUMMED, HOLD, TURN) == (0, 1, 2, 3)
