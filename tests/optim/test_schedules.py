"""Schedules at points that can be worked out by hand, and where they drop."""

import math

import pytest
from hypothesis import given, strategies as st

from mpibow.errors import ConfigError
from mpibow.optim.schedules import (
    ConstantRate,
    Cosine,
    CosineRestarts,
    Exponential,
    Inverse,
    Linear,
    MultiStep,
    OneCycle,
    Polynomial,
    StepDecay,
    Warmup,
    Wsd,
    ended_early,
    multiplier,
    over,
)
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("schedule", "epoch", "rate"),
    [
        (ConstantRate(), 0.0, 1.0),
        (StepDecay(30, 0.1), 29.999, 1.0),
        (StepDecay(30, 0.1), 30.0, 0.1),
        (StepDecay(0.5, 0.5), 1.75, 0.125),
        (MultiStep((80, 120), 0.1), 80.0, 0.1),
        (MultiStep((80, 120), 0.1), 120.0, 0.01),
        (Exponential(0.25), 0.5, 0.5),
        (Inverse(0.5, 2.0), 2.0, 0.25),
        (Inverse(1.0, 0.5), 3.0, 0.5),
        (Cosine(12), 4.0, 0.75),
        (Cosine(10), 5.0, 0.5),
        (Cosine(10), 11.0, 0.0),
        (Cosine(10, floor=0.2), 5.0, 0.6),
        (Linear(8), 2.0, 0.75),
        (Linear(8, 0.5, 2.0), 6.0, 1.625),
        (Polynomial(8, 2.0), 2.0, 0.5625),
        (Polynomial(8, 2.0), 8.5, 0.0),
        (OneCycle(10), 1.5, 0.52),
        (OneCycle(10), 3.0, 1.0),
        (OneCycle(10), 6.5, (1 + 4e-6) / 2),
        (OneCycle(10), 30.0, 4e-6),
        (OneCycle(10, 0.25, "linear", 2.0, 5.0), 6.25, 0.55),
        (OneCycle(10, 0.25, "linear", 2.0, 5.0, True), 5.0, 0.5),
        (OneCycle(10, 0.25, "linear", 2.0, 5.0, True), 7.5, 0.3),
        (CosineRestarts(10), 5.0, 0.5),
        (CosineRestarts(12, floor=0.2), 28.0, 0.8),
        (CosineRestarts(12, 2), 11.999999999, 0.0),
        (CosineRestarts(12, 2), 36.0, 1.0),
        (Wsd(10), 9.0, 0.5),
        (Wsd(10, floor=0.2), 11.0, 0.2),
        (Wsd(10, 0.5, "cosine"), 6.25, (1 + math.cos(math.pi / 4)) / 2),
        (Wsd(10, 0.5, "sqrt"), 6.25, 0.5),
    ],
)
def test_rate(schedule, epoch, rate):
    assert schedule.rate(epoch) == pytest.approx(rate, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("schedule", "before", "after", "drops"),
    [
        (StepDecay(30, 0.1), 29.9, 30.0, True),  # a drop at the end of the interval belongs to it
        (StepDecay(30, 0.1), 30.0, 30.1, False),  # one at its start does not
        (MultiStep((80, 120), 0.1), 79.9, 80.0, True),
        (MultiStep((80, 120), 0.1), 119.9, 120.1, True),
        (MultiStep((80, 120), 0.1), 120.1, 1e9, False),
    ],
)
def test_drops(schedule, before, after, drops):
    assert schedule.drops(before, after) is drops


@pytest.mark.parametrize(
    "schedule", [ConstantRate(), Exponential(0.5), Inverse(1.0, 1.0), Cosine(5), CosineRestarts(2)]
)
def test_smooth_schedules_never_drop(schedule):
    assert not any(schedule.drops(step / 10, (step + 1) / 10) for step in range(100))
    assert not schedule.drops(0.0, 100.0)


epochs = st.floats(0, 1000)


@given(
    st.one_of(st.builds(StepDecay, st.floats(0.01, 100), st.just(0.5)), st.just(MultiStep((1.5, 20, 300), 0.5))),
    epochs,
    epochs,
)
def test_a_drop_is_where_the_rate_changes(schedule, one, other):
    before, after = sorted((one, other))
    if schedule.rate(before) > 0:  # 0.5 ** 2000 is 0
        assert schedule.drops(before, after) == (schedule.rate(after) != schedule.rate(before))


@pytest.mark.parametrize(("epoch", "rate"), [(0.0, 0.1), (1.0, 0.28), (2.5, 0.55), (5.0, 1.0), (6.0, 1.0)])
def test_warmup_is_linear(epoch, rate):
    assert Warmup(5.0).rate(epoch) == pytest.approx(rate, rel=1e-12)


def test_multiplier_is_the_product():
    assert multiplier(Cosine(10), Warmup(10.0, 0.5), 5.0) == pytest.approx(0.5 * 0.75)
    assert multiplier(Exponential(0.5), Warmup(), 3.0) == 0.125
    assert math.isclose(multiplier(StepDecay(2, 0.1), Warmup(1.0), 2.0), 0.1)


def test_a_warmup_of_iterations():
    assert [Warmup(start=0.2, iterations=4).rate(9.0, n) for n in (0, 1, 3, 4)] == pytest.approx([0.2, 0.4, 0.8, 1.0])
    assert multiplier(Exponential(0.5), Warmup(start=0.5, iterations=2), 1.0, 1) == 0.375
    with refuses("iterations: cannot be combined with epochs 1, got 5; leave one out"):
        Warmup(1.0, iterations=5)


def test_auto_is_the_runs_epochs():
    assert over(Cosine(floor=0.1), 30) == Cosine(30, floor=0.1)
    for kind in (Cosine, Linear, Polynomial, OneCycle, Wsd):
        assert over(kind(), 30) == kind(30)
    for schedule in (Cosine(20), StepDecay(2, factor=0.5), ConstantRate()):
        assert over(schedule, 30) is over(schedule, None) is schedule
    with pytest.raises(ConfigError):
        over(Cosine(), None)


def test_what_ends_before_the_run_is_said():
    said = "warning: update.schedule ends before the run: from epoch 20 to 100 the rate is 0"
    assert ended_early(Cosine(20), 0.02, 100) == f"{said}; set update.schedule.epochs=auto"
    assert "the rate is 0.002; " in ended_early(Cosine(20, floor=0.1), 0.02, 100)
    assert "the rate is 0.03; " in ended_early(Linear(20, end_factor=1.5), 0.02, 100)
    for schedule, epochs in ((Cosine(20), 20), (Cosine(20), None), (over(Cosine(), 7), 7), (ConstantRate(), 100)):
        assert ended_early(schedule, 0.02, epochs) == ""
