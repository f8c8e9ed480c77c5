"""The family of rules: what names stand for, what does not go together, and random points beside the oracle."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.errors import ConfigError
from mpibow.optim import AdamW, Muon, Sgd
from mpibow.sync import PRESETS, Family, caps
from mpibow.sync.family import Outer, Then
from mpibow.sync.rule import Averaging
from mpibow.tune import Cap
from tests.refusals import refuses
from tests.run import tiny
from tests.stepping import ball_step
from tests.sync.test_rules import LOCALS, SIZE, Cluster, compare, start_at

POINTS = {
    "sma": Averaging(4, 1.0, gain="measured"),
    "crossbow": Averaging(4, 0.25, 0.9, replicas="lagging"),
    "easgd": Averaging(4, 0.225, period=10, replicas="lagging"),
    "eamsgd": Averaging(4, 0.225, period=10, replicas="lagging"),
    "ssgd": Averaging(4, 0.25, replicas="reset", sends="gradients"),
    "local_sgd": Averaging(4, 0.25, period=16, replicas="reset"),
    "slowmo": Averaging(4, 0.25, period=12, replicas="reset", outer="momentum", outer_momentum=0.7),
    "diloco": Averaging(4, 0.25, period=500, replicas="reset", outer="nesterov", lr=0.7, outer_momentum=0.9),
    "muloco": Averaging(4, 0.25, period=30, replicas="reset", outer="nesterov", lr=0.7, outer_momentum=0.9),
}


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "post_local_sgd"])
def test_what_a_name_stands_for(name) -> None:
    assert Family(name=name).of(4) == POINTS[name]


def test_post_local_sgd_is_local_from_an_epoch_on() -> None:
    rule = Family(name="post_local_sgd", then=Then(epoch=75))
    assert rule.of(4) == POINTS["ssgd"]
    assert (rule.at(74.9) is rule, rule.at(75).name) == (True, "local_sgd")
    assert rule.behind.of(4) == POINTS["local_sgd"]


def test_crossbows_switch() -> None:
    rule = Family(name="crossbow", resync=7, restart=(3.0, 40.0), then=Then(epoch=30))
    assert rule.at(30) == Family(name="ssgd", resync=7, restart=(3.0, 40.0))


def test_an_outer_step_that_is_set_has_pytorchs_defaults() -> None:
    point = Family(outer=Outer("nesterov")).of(2)
    assert (point.lr, point.outer_momentum, point.gain) == (1.0, 0.9, 1.0)
    assert Family(name="diloco", outer=Outer(lr=0.5)).of(2).lr == 0.5
    assert Family(name="diloco", outer=Outer("mean", gain=2.0)).of(2).used(1.0) == 2.0


def test_a_gain_is_measured_at_period_1_alone() -> None:
    assert [Family(period=period).point.gain for period in (1, 2)] == ["measured", 1.0]
    assert Family(replicas="reset").point.gain == "measured"
    assert Family(replicas="lagging").point.gain == 1.0


def test_the_same_rule_for_any_number_of_learners() -> None:
    points = [Family().of(k) for k in (1, 2, 4, 64)]
    assert len({replace(point, k=1, alpha=0.0) for point in points}) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"momentum": 0.5}, "momentum: is that of a lagging centre, got 0.5 with replicas pulled; leave it at auto"),
        ({"name": "ssgd", "alpha": 0.5}, "alpha: pulls replicas, got 0.5 with replicas reset; leave it at auto"),
        ({"name": "crossbow", "alpha": 0.0}, "alpha: must be above 0 with replicas lagging, got 0.0"),
        ({"sends": "gradients"}, "sends: gradients needs replicas reset, got pulled; set sends to steps"),
        ({"name": "ssgd", "period": 2}, "period: must be 1 with sends gradients, got 2; set sends to steps"),
        (
            {"name": "ssgd", "outer": Outer("nesterov")},
            "outer.name: must be mean with sends gradients, got nesterov; set sends to steps",
        ),
        (
            {"name": "crossbow", "outer": Outer("nesterov")},
            "outer.name: must be mean with replicas lagging, got nesterov; set replicas to pulled",
        ),
        (
            {"name": "crossbow", "outer": Outer(gain=2.0)},
            "outer.gain: must be 1 with replicas lagging, got 2.0; set replicas to pulled",
        ),
        (
            {"name": "diloco", "outer": Outer(gain=2.0)},
            "outer.gain: is that of mean, got 2.0 with nesterov; set outer.lr",
        ),
        (
            {"period": 2, "outer": Outer(gain="measured")},
            "outer.gain: is measured of single steps, at period 1; set it to a number",
        ),
        (
            {"outer": Outer(lr=0.5)},
            "outer.lr: is that of momentum and nesterov, got 0.5 with mean; set outer.gain",
        ),
        ({"outer": Outer(momentum=0.5)}, "outer.momentum: is that of momentum and nesterov, got 0.5 with mean"),
        ({"then": Then(epoch=1, period=2)}, "then.period: must be 1 with sends gradients, got 2; set sends to steps"),
        (
            {"name": "post_local_sgd"},
            "then: post_local_sgd needs the epoch at which learners part, as then: {epoch: 75}",
        ),
    ],
)
def test_what_does_not_go_together(settings: dict[str, Any], message) -> None:
    with refuses(message):
        Family(**settings)


def test_which_optimiser_a_rule_needs() -> None:
    assert Family(name="muloco").going_with(Muon()) == Family(name="muloco")
    nesterov = Sgd(momentum=0.9, nesterov=True)
    assert Family(name="eamsgd").going_with(nesterov) == Family(name="eamsgd")
    for name, needs in (("muloco", "set update.name to muon"), ("eamsgd", "set update.nesterov to true")):
        with pytest.raises(ConfigError, match=needs):
            Family(name=name).going_with(Sgd())
    later = Family(name="crossbow", then=Then(name="sma", epoch=3))
    assert later.going_with(Sgd()) == later
    adam = later.going_with(AdamW()).at(3)
    assert isinstance(adam, Family)
    assert adam.of(4).gain == 1.0


def test_a_fixed_alpha_bounds_the_learners_of_both_rules() -> None:
    rule = Family(name="crossbow", momentum=0.0, alpha=0.6)
    assert caps(rule, 1, 10**6) == (Cap(2, "rule.alpha 0.6 is stable with up to 2 learner(s) a rank"),)
    assert caps(Family(), 1, 10**6) == ()
    assert caps(Family(), 4, 18) == (Cap(4, "an epoch has 18 batches for 4 rank(s)"),)
    assert caps(Family(), 4, 3)[0].most == 1
    later = Family(then=Then(name="crossbow", momentum=0.0, alpha=0.6, epoch=3))
    assert caps(later, 1, 10**6)[0].most == 2


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rule": {"name": "diloco"}}, "rule.outer.name: nesterov"),
        ({"rule": {"name": "local_sgd"}}, "rule.replicas: reset, with sends: steps,"),
        ({"rule": {"name": "crossbow", "then": {"epoch": 2}}}, "rule.then"),
    ],
)
def test_a_gpu_is_refused(tmp_path: Path, settings: dict[str, Any], named) -> None:
    with refuses(f"device cuda: {named} computes on CPUs only; set device to auto"):
        tiny.run(tiny.job(tmp_path, **settings, device="cuda", precision="float32"))


@st.composite
def points(draw: st.DrawFn) -> Family:
    """Any of the family that sends steps; alphas within what settles."""
    replicas = draw(st.sampled_from(["pulled", "lagging", "reset"]))
    period = draw(st.integers(1, 5))
    gains = st.sampled_from(["auto", "learners"]) | st.floats(1, 4)
    momenta = st.builds(
        Outer, st.sampled_from(["momentum", "nesterov"]), lr=st.floats(0.1, 1), momentum=st.floats(0, 0.9)
    )
    outer = st.builds(Outer, st.just("auto"), gains) | momenta
    settings: dict[str, Any] = {"replicas": replicas, "period": period, "outer": draw(outer)}
    if replicas == "lagging":
        settings = {**settings, "outer": Outer(), "momentum": draw(st.floats(0, 0.9))}
    if replicas != "reset":
        settings["alpha"] = draw(st.just("auto") | st.floats(0.01, 0.2))
    return Family(**settings)


@hypothesis.settings(max_examples=60, deadline=None)
@given(
    points(), st.lists(st.integers(1, 3), min_size=1, max_size=3), st.sets(st.integers(1, 29), max_size=3),
    st.sampled_from(["plain", "momentum"]), st.lists(st.sampled_from([0.02, 0.05]), min_size=30, max_size=30),
)  # fmt: skip
def test_any_point_is_the_oracles(settings: Family, counts, restarts, local, rates) -> None:
    """In float64, over random learners, alphas, momenta, periods, rates and restarts."""
    compare(settings, LOCALS[local], tuple(counts), rates=rates, restarts=restarts)


@pytest.mark.parametrize("local", ["plain", "momentum"])
@pytest.mark.parametrize(
    "settings",
    [
        *(Family(alpha=alpha, outer=Outer(gain=1.0)) for alpha in (0.0, 0.25, 1.0)),
        Family(replicas="reset", outer=Outer(gain=1.0)),
        Family(period=5, alpha=0.5),
        Family(name="local_sgd", period=5),
    ],
)
def test_on_a_quadratic_replicas_have_the_mean_of_ssgd(settings: Family, local) -> None:
    """Their steps are linear, so the mean does not depend on how far they are apart: seen where a period ends."""
    curvature, step = np.linspace(0.1, 2.0, SIZE), ball_step(0.05, 0.9 * (local == "momentum"), False, 0.0, SIZE)
    ours, one_step = (Cluster(each, (1, 2), start_at()) for each in (settings, Family(name="ssgd")))
    for t in range(30):
        noise = np.random.default_rng(t).standard_normal((3, SIZE))
        for each in (ours, one_step):
            each.step(curvature * each.weights + noise, step)
        if (t + 1) % settings.point.period == 0:
            np.testing.assert_allclose(ours.rules[0].centre, one_step.rules[0].centre, rtol=1e-10, atol=1e-12)
