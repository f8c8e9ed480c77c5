"""What a meter makes of times, by hand; and how sure it is, beside how right."""

import math

import numpy as np
import pytest

from mpibow.tune.meter import LEAST, WARM_UP, Estimate, Meter, Reading, enough, estimate
from mpibow.tune.tuner import Tuner, WindowSpan
from tests.tune.windows import tuner_of

SPAN = WindowSpan(least=0.2, most=2.0, precision=0.01)


def reading(own: float = 0.0, whole: float = 0.0, elapsed: float = 1.0) -> Reading:
    """Of times of 1 s with these standard errors."""
    return Reading(Estimate(1.0, own), Estimate(1.0, whole), elapsed)


def fed(times: list[float]) -> list[bool]:
    meter = Meter(SPAN)
    return [meter.add(time, time) for time in [9.0] * WARM_UP + times][WARM_UP:]


@pytest.mark.parametrize(
    ("times", "mean", "error"),
    [
        ([0.5] * 12, 0.5, 0.0),
        ([1.0, 3.0] * 6, 2.0, 11**-0.5),  # all block means are 2: the times' own error, sqrt(12 / 11) / sqrt(12)
        ([1.0, 1.0, 3.0, 3.0] * 3, 2.0, 5**-0.5),  # blocks of (1, 1) and (3, 3): that of six independent times
        ([1.0] * 10 + [50.0] + [1.0] * 9, 1.0, 0.0),  # a stray one is left out
        ([1.0, 1.0, 1.0, 2.0] * 30, 1.25, None),  # a tail that belongs to the iteration counts; the median is 1
        ([1.0] * 20 + [10.0, 11.0, 12.0, 13.0], 30 / 21, None),  # no more than an eighth is left out, the 3 longest,
        ([1.0, 1.0, 1.0, 1.0, 10.0] * 5, 70 / 25, None),  # and where many are equally long, none
    ],
)
def test_the_mean_and_its_error(times, mean, error):
    found = estimate(times)
    assert found.seconds == pytest.approx(mean)
    assert error is None or found.error == pytest.approx(error)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_seconds_are_a_unit_like_any_other(scale):
    times = np.random.default_rng(0).lognormal(0.0, 0.3, 100)
    one, other = estimate(times.tolist()), estimate((scale * times).tolist())
    assert other.seconds == pytest.approx(scale * one.seconds)
    assert other.relative == pytest.approx(one.relative)


def test_the_error_is_what_it_says():
    """The mean lies within three standard errors in nearly all of 400 windows, and the error is not much too large."""
    generator = np.random.default_rng(0)
    off = []
    for _ in range(400):
        found = estimate((1.0 + 0.1 * generator.standard_normal(60)).tolist())
        off.append((found.seconds - 1.0) / found.error)
    assert np.mean(np.abs(off) < 3) > 0.98
    assert 0.6 < float(np.std(off)) < 1.1


def test_the_error_of_times_that_hang_together():
    """A slow wave: the error of independent times would be four times too small."""
    generator = np.random.default_rng(0)
    off, naive = [], []
    for _ in range(300):
        noise, times = 0.0, []
        for _ in range(200):
            noise = 0.9 * noise + generator.standard_normal()
            times.append(100.0 + noise)
        found = estimate(times)
        off.append((found.seconds - 100.0) / found.error)
        naive.append((found.seconds - 100.0) / (np.std(times) / 200**0.5))
    assert float(np.std(naive)) > 3.5
    assert float(np.std(off)) < 1.6


def test_warm_up_is_not_counted():
    meter = Meter(SPAN)
    for time in [5.0] * WARM_UP + [0.125] * LEAST:
        meter.add(time, 2 * time)
    assert meter.reading() == Reading(Estimate(0.125, 0.0), Estimate(0.25, 0.0), 0.25 * LEAST)


def test_too_few_times_tell_nothing():
    meter = Meter(SPAN)
    for _ in range(WARM_UP + LEAST - 1):
        assert not meter.add(1.0, 1.0)
    assert meter.reading() is None
    assert meter.add(1.0, 1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
def test_times_that_are_none_are_ignored(bad):
    meter = Meter(SPAN)
    for _ in range(WARM_UP + LEAST):
        meter.add(1.0, 1.0)
    meter.add(bad, 1.0)
    meter.add(1.0, bad)
    found = meter.reading()
    assert (found.elapsed, found.own) == (LEAST, Estimate(1.0, 0.0))


def test_it_asks_at_once_where_it_is_sure_and_then_ever_more_rarely():
    """At 12 times and a quarter more each time: 15, 18, 22, 27, 33, ..."""
    asked = fed([0.1] * 60)
    assert [i + 1 for i, ask in enumerate(asked) if ask] == [12, 15, 18, 22, 27, 33, 41, 51]


def test_it_does_not_ask_before_the_least_time():
    """13 times of 1/64 s are 0.203 s."""
    asked = fed([1 / 64] * 40)
    assert [i + 1 for i, ask in enumerate(asked) if ask] == [13, 16, 20, 25, 31, 38]


def test_it_asks_for_want_of_time():
    """Half of the times are three times as long: not sure within 2 s, which is where it asks all the same."""
    times = [0.02, 0.06] * 40
    asked = fed(times)
    first = asked.index(True)
    assert sum(times[: first + 1]) >= SPAN.most
    assert sum(times[: int((first + 1) / 1.25)]) < SPAN.most


def test_a_noisy_rank_makes_the_others_wait():
    assert enough([reading(), reading(own=0.01)], SPAN)
    assert not enough([reading(), reading(own=0.011)], SPAN)
    assert not enough([reading(), reading(whole=0.011)], SPAN)
    assert not enough([reading(), reading(elapsed=0.19)], SPAN)
    assert not enough([reading(), None], SPAN)


def test_but_not_for_ever():
    assert enough([reading(own=0.5), reading(own=0.5, elapsed=2.0)], SPAN)
    assert not enough([reading(own=0.5), reading(own=0.5, elapsed=1.99)], SPAN)
    assert not enough([reading(elapsed=5.0), None], SPAN)


def test_spans_follow_the_settings():
    assert tuner_of(threshold=0.04, window=3.0, watch=7.0).looking == WindowSpan(0.375, 3.0, 0.02)
    assert (Tuner().pause, tuner_of(watch=7.0, again=80.0).pause) == (12, 11)
    assert tuner_of(threshold=0.04, watch=7.0).watching == WindowSpan(7.0, 14.0, 0.02)
