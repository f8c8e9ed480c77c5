"""The example of an own step: its step is right, and it trains on two ranks."""

from examples.own_step import Bounded
from mpibow.testing import check_update


def test_its_step():
    assert "numpy" in check_update(Bounded(lr=0.002))
