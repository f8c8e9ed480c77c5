"""Reduce on plateau by hand and beside PyTorch's."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from mpibow.config import build
from mpibow.optim.plateau import Plateau, Reduced, follow


def rates(schedule: Plateau, values: list[float]) -> list[float]:
    state, found = Reduced(), []
    for iteration, value in enumerate(values):
        state = follow(schedule, state, value, iteration, rises=schedule.metric == "accuracy")
        found.append(state.rate)
    return found


def test_by_hand():
    schedule = Plateau(factor=0.5, patience=1, threshold=0.1)
    assert rates(schedule, [1.0, 0.95, 0.95, 0.95, 0.95]) == [1.0, 1.0, 0.5, 0.5, 0.25]  # 5 % better is no improvement
    assert rates(schedule, [1.0, 0.95, 0.85, 0.85, 0.7]) == [1.0] * 5
    assert rates(replace(schedule, threshold_mode="abs", patience=0), [1.0, 0.95, 0.85]) == [1.0, 0.5, 0.5]
    assert rates(replace(schedule, metric="accuracy", patience=0), [0.5, 0.54, 0.56]) == [1.0, 0.5, 0.5]
    assert rates(replace(schedule, patience=0, cooldown=2), [1.0] * 6) == [1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert rates(replace(schedule, patience=0, floor=0.3), [1.0] * 4) == [1.0, 0.5, 0.3, 0.3]


def test_what_is_not_finite_is_no_improvement():
    nan = float("nan")
    assert rates(Plateau(factor=0.5, patience=1), [nan, nan, 1.0, 0.5]) == [1.0, 0.5, 0.5, 0.5]
    assert rates(Plateau(factor=0.5, patience=0), [float("inf"), 1.0, nan]) == [0.5, 0.5, 0.25]


def test_a_drop_is_of_the_iteration_to_come():
    schedule, state = Plateau(patience=0, factor=0.5, floor=0.5), Reduced()
    for iteration, expected in ((10, -1), (20, 20), (30, 20)):  # the floor: no drop any more
        state = follow(schedule, state, 1.0, iteration)
        assert state.dropped_at == expected


def test_the_state_goes_through_json():
    state = follow(Plateau(), follow(Plateau(), Reduced(), 0.1 + 0.2, 1), float("nan"), 2)
    assert build(Reduced, json.loads(json.dumps(asdict(state)))) == state


def test_another_metric_begins_anew_at_the_rate_that_is_reached():
    state = Reduced("loss", best=0.1, bad=3, rate=0.25, dropped_at=7)
    assert follow(Plateau(metric="accuracy"), state, 0.5, 9) == Reduced("accuracy", 0.5, 0, 0, 0.25, 7)


@pytest.mark.torch
@pytest.mark.parametrize(("metric", "mode"), [("loss", "rel"), ("accuracy", "abs")])
@pytest.mark.parametrize(("patience", "cooldown"), [(0, 0), (1, 3)])
def test_beside_pytorch(metric, mode, patience, cooldown):
    torch = pytest.importorskip("torch")
    schedule = build(Plateau, {"metric": metric, "factor": 0.5, "patience": patience, "threshold": 0.05,
                               "threshold_mode": mode, "cooldown": cooldown, "floor": 0.01})  # fmt: skip
    values = np.random.default_rng(patience).uniform(0.2, 1.0, 60).tolist()
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, "max" if metric == "accuracy" else "min", factor=0.5, patience=patience, threshold=0.05,
        threshold_mode=mode, cooldown=cooldown, min_lr=0.01,
    )  # fmt: skip
    expected = []
    for value in values:
        theirs.step(value)
        expected.append(optimiser.param_groups[0]["lr"])
    assert len(set(expected)) > 3
    assert rates(schedule, values) == pytest.approx(expected, rel=1e-12)
