"""Schedules beside those of torch.optim.lr_scheduler, step by step: an epoch of ours is a step of theirs."""

import pytest

from mpibow.optim.schedules import (
    Cosine,
    CosineRestarts,
    Exponential,
    Linear,
    MultiStep,
    OneCycle,
    Polynomial,
    StepDecay,
)

STEPS = 40


def theirs(name: str, **settings) -> list[float]:
    torch = pytest.importorskip("torch")
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = getattr(torch.optim.lr_scheduler, name)(optimiser, **settings)
    found = []
    for _ in range(STEPS):
        found.append(float(optimiser.param_groups[0]["lr"]))
        optimiser.step()
        schedule.step()
    return found


@pytest.mark.torch
@pytest.mark.parametrize(
    ("schedule", "name", "settings"),
    [
        (StepDecay(7, 0.5), "StepLR", {"step_size": 7, "gamma": 0.5}),
        (MultiStep((5, 25), 0.1), "MultiStepLR", {"milestones": [5, 25], "gamma": 0.1}),
        (Exponential(0.9), "ExponentialLR", {"gamma": 0.9}),
        (Cosine(STEPS - 1, floor=0.1), "CosineAnnealingLR", {"T_max": STEPS - 1, "eta_min": 0.1}),
        (Linear(20, 0.25, 0.75), "LinearLR", {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 20}),
        (Polynomial(20, 2.0), "PolynomialLR", {"total_iters": 20, "power": 2.0}),
        (CosineRestarts(10, floor=0.2), "CosineAnnealingWarmRestarts", {"T_0": 10, "eta_min": 0.2}),
        (CosineRestarts(5, 2), "CosineAnnealingWarmRestarts", {"T_0": 5, "T_mult": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_step_by_step(schedule, name, settings):
    expected = theirs(name, **settings)
    assert [schedule.rate(float(step)) for step in range(STEPS)] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("curve", ["cos", "linear"])
@pytest.mark.parametrize("three_phase", [False, True])
def test_one_cycle(curve, three_phase):
    """PyTorch's phases end a step early, at pct_start * steps - 1 and so on: so ours is taken at those parts."""
    ours = OneCycle(1.0, 0.25, curve, 10.0, 100.0, three_phase)
    expected = theirs(
        "OneCycleLR", max_lr=1.0, total_steps=STEPS + 1, pct_start=0.25, anneal_strategy=curve, cycle_momentum=False,
        div_factor=10.0, final_div_factor=100.0, three_phase=three_phase,
    )  # fmt: skip
    whole = STEPS + 1
    ends = [0.0, 0.25 * whole - 1, *([0.5 * whole - 2] if three_phase else []), whole - 1.0]
    parts = [0.0, 0.25, *([0.5] if three_phase else []), 1.0]
    found = []
    for step in range(STEPS):
        phase = next(i for i in range(1, len(ends)) if step <= ends[i])
        within = (step - ends[phase - 1]) / (ends[phase] - ends[phase - 1])
        found.append(ours.rate(parts[phase - 1] + within * (parts[phase] - parts[phase - 1])))
    assert found == pytest.approx(expected, rel=1e-9)
