"""The gain at points that can be worked out by hand, and for noise of a known size."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mpibow.sync.gain import CERTAIN, Averages, carried, follow, noise_gain


def known(n1: float, n2: float, count: int = CERTAIN) -> Averages:
    return Averages(0.25 * n1, 0.25 * n2, 0.25, count)


def certain(averages: Averages) -> Averages:
    """The same after many more iterations."""
    return replace(averages, count=CERTAIN)


@pytest.mark.parametrize(
    ("k", "n1", "n2", "gain"),
    [
        (2, 3.0, 2.0, 1.5),  # noise 2, signal 1: (2 + 1) / (1 + 1)
        (4, 5.0, 2.0, 2.5),  # noise 4, signal 1: (4 + 1) / (1 + 1)
        (4, 4.0, 1.0, 4.0),  # all noise
        (4, 4.0, 0.5, 4.0),  # less than noise would leave: no signal
        (4, 4.0, 0.0, 4.0),
        (4, 4.0, 4.0, 1.0),  # no noise
        (4, 4.0, 5.0, 1.0),  # noise can't be negative
        (4, 0.0, 0.0, 1.0),  # 0 / 0
        (1, 3.0, 2.0, 1.0),
        (1000, 2.0, 1.0, 1.0 / (1.0 / 999 + 998 / 999) * (1000 / 999 + 998 / 999)),
    ],
)
def test_by_hand(k, n1, n2, gain):
    assert noise_gain(known(n1, n2), k) == pytest.approx(gain, rel=1e-12)


def test_the_gain_grows_with_the_iterations_behind_it():
    assert noise_gain(Averages(), 4) == 1.0
    assert noise_gain(known(4.0, 1.0, count=0), 4) == 1.0
    assert noise_gain(known(4.0, 1.0, count=CERTAIN // 2), 4) == 2.5
    assert noise_gain(known(4.0, 1.0, count=CERTAIN), 4) == 4.0
    assert noise_gain(Averages(4.0, 1.0, 0.0, CERTAIN), 4) == 1.0


@pytest.mark.parametrize(("n1", "n2"), [(math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0), (math.inf, math.inf)])
def test_what_is_not_finite_gains_nothing(n1, n2):
    assert noise_gain(known(n1, n2), 4) == 1.0


@pytest.mark.parametrize("n1", np.geomspace(1e-300, 1e300, 7))
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.25, 0.5, 0.9, 1.0, 1.1])
@pytest.mark.parametrize("k", [2, 3, 64])
def test_always_between_1_and_k(k, n1, ratio):
    gain = noise_gain(known(n1, ratio * n1), k)
    assert 1.0 <= gain <= k
    assert gain == pytest.approx(
        min(max(1 / ratio, 1.0), k) if ratio else k
    )  # noise + signal = n1, noise / k + signal = n2


def test_first_average():
    """An iteration of k weighs k / 1000; steps are -rate v."""
    averages = follow(Averages(), 4, mean_square=0.02, square_of_mean=0.01, rate=0.1)
    assert averages.n1 == pytest.approx(0.004 * 2.0)
    assert averages.n2 == pytest.approx(0.004 * 1.0)
    assert averages.weight == pytest.approx(0.004)
    assert averages.count == 1


def test_second_average():
    averages = follow(Averages(2.0, 1.0, 0.5, 7), 250, mean_square=6.0, square_of_mean=3.0, rate=-1.0)
    assert averages == Averages(0.75 * 2 + 0.25 * 6, 0.75 * 1 + 0.25 * 3, 0.75 * 0.5 + 0.25, 8)


def test_more_than_a_thousand_learners_remember_nothing():
    assert follow(Averages(2.0, 1.0, 0.5, 7), 4000, 6.0, 3.0, 1.0) == Averages(6.0, 3.0, 1.0, 8)


def test_the_bias_of_the_start_is_corrected():
    averages = Averages()
    for count in range(1, 30):
        averages = follow(averages, 4, 5.0, 2.0, 1.0)
        assert averages.n1 / averages.weight == pytest.approx(5.0)
        assert averages.n2 / averages.weight == pytest.approx(2.0)
        assert noise_gain(averages, 4) == pytest.approx(1.0 + 1.5 * count / CERTAIN)


def test_a_schedule_does_not_distort_the_averages():
    one = two = Averages()
    for t in range(50):
        rate = 0.1 / (1 + t)
        one = follow(one, 4, 5.0, 2.0, 1.0)
        two = follow(two, 4, 5.0 * rate**2, 2.0 * rate**2, rate)
    assert two.n1 == pytest.approx(one.n1, rel=1e-12)
    assert two.n2 == pytest.approx(one.n2, rel=1e-12)


@pytest.mark.parametrize(
    ("mean_square", "square_of_mean", "rate"),
    [(5.0, 2.0, 0.0), (math.nan, 2.0, 1.0), (5.0, math.nan, 1.0), (math.inf, 2.0, 1.0), (5.0, 2.0, math.nan)],
)
def test_an_iteration_that_tells_nothing_is_left_out(mean_square, square_of_mean, rate):
    averages = Averages(2.0, 1.0, 0.5, 7)
    assert follow(averages, 4, mean_square, square_of_mean, rate) is averages


@pytest.mark.parametrize("k", [2, 8])
@pytest.mark.parametrize("noise", [0.0, 1.0, 8.0, 100.0])
def test_noise_of_a_known_size(k, noise):
    """v_i = signal + noise_i, |signal|^2 = 1, the variance of noise_i `noise` over all elements."""
    size, generator = 200, np.random.default_rng(0)
    signal = np.full(size, size**-0.5)
    averages = Averages()
    for _ in range(1500):
        v = signal + (noise / size) ** 0.5 * generator.standard_normal((k, size))
        u = -0.3 * v
        averages = follow(averages, k, float((u * u).sum()) / k, float((u.mean(axis=0) ** 2).sum()), 0.3)
    assert noise_gain(certain(averages), k) == pytest.approx((noise + 1) / (noise / k + 1), rel=0.05)


def test_momentum_tells_as_a_batch_that_is_larger():
    """v = m v + g: noise 1 / (1 - m^2), signal 1 / (1 - m)^2 times the gradients'; m = 1/2: 4/3 and 4."""
    k, m, noise, size, generator = 4, 0.5, 12.0, 400, np.random.default_rng(0)
    averages, v = Averages(), np.zeros((k, size))
    for t in range(2000):
        v = m * v + size**-0.5 + (noise / size) ** 0.5 * generator.standard_normal((k, size))
        if t >= 20:  # v has forgotten its start
            averages = follow(averages, k, float((v * v).sum()) / k, float((v.mean(axis=0) ** 2).sum()), 1.0)
    assert noise_gain(certain(averages), k) == pytest.approx((16 + 4) / (16 / 4 + 4), rel=0.05)


def test_another_number_of_learners_knows_the_same_noise():
    """Noise 3 and signal 1: n1 = 4, n2 = 2.5 with 2 learners, 1.75 with 4; the gain 4 / 2.5 and 4 / 1.75."""
    two = known(4.0, 2.5)
    four = carried(two, 2, 4)
    assert (four.n1, four.n2, four.weight, four.count) == (two.n1, pytest.approx(0.25 * 1.75), 0.25, CERTAIN)
    assert [noise_gain(two, 2), noise_gain(four, 4)] == pytest.approx([1.6, 4 / 1.75])
    assert carried(four, 4, 2).n2 == pytest.approx(two.n2)


def test_one_learner_keeps_what_several_knew():
    two = known(4.0, 2.5)
    one = carried(two, 2, 1)
    assert one == two
    assert noise_gain(one, 1) == 1.0
    assert follow(one, 1, mean_square=100.0, square_of_mean=100.0, rate=1.0) is one
    assert carried(one, 1, 4) == carried(two, 2, 4)


@pytest.mark.parametrize("noise", [0.0, 1.0, 30.0])
def test_carried_averages_are_those_of_learners_of_that_number(noise):
    size, generator = 200, np.random.default_rng(0)
    averages = {k: Averages() for k in (2, 16)}
    for k in averages:
        for _ in range(1500):
            v = size**-0.5 + (noise / size) ** 0.5 * generator.standard_normal((k, size))
            averages[k] = follow(averages[k], k, float((v * v).sum()) / k, float((v.mean(axis=0) ** 2).sum()), 1.0)
    two, sixteen = (certain(averages[k]) for k in (2, 16))
    assert noise_gain(carried(two, 2, 16), 16) == pytest.approx(noise_gain(sixteen, 16), rel=0.1)
