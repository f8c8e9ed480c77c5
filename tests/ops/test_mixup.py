"""The table of mixup's shares against what NumPy draws, and against distributions that are known."""

import numpy as np
import pytest

from mpibow.ops.mixup import SHARES, larger_shares


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.4, 1.0, 1.5, 2.5, 20.0])
def test_it_is_distributed_as_the_larger_of_b_and_1_less_b(alpha):
    table = larger_shares(alpha)
    assert table.shape == (SHARES,)
    assert 0.5 <= table[0] < table[-1] <= 1.0
    assert (np.diff(table) >= 0).all()
    drawn = np.random.default_rng(0).beta(alpha, alpha, 200_000)
    drawn = np.maximum(drawn, 1 - drawn)
    for at in np.linspace(0.51, 0.999, 20):  # 200,000 draws: one deviation is 0.0011 at the most
        assert (table <= at).mean() == pytest.approx((drawn <= at).mean(), abs=0.005)


def test_beta_1_is_uniform_and_beta_one_half_the_arcsine():
    places = (np.arange(SHARES) + 0.5) / SHARES
    np.testing.assert_allclose(larger_shares(1.0), 0.5 + places / 2, atol=1e-9)
    np.testing.assert_allclose(larger_shares(0.5), np.sin(np.pi / 4 * (1 + places)) ** 2, atol=1e-7)


def test_of_few_and_of_many():
    assert (larger_shares(1e-3) > 1 - 1e-6).mean() > 0.97  # hardly anything is mixed
    assert larger_shares(100.0).max() < 0.67  # nearly halves
