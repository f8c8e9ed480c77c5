"""What it makes of real times, as bad as they were."""

from __future__ import annotations

import pytest

from mpibow.tune import Decision, History, Meter, Tuner, Window, decide, enough
from tests.tune.recorded import LENET, RESNET_20, REST, Recording


def replayed(recording: Recording, offset: int = 0) -> list[Decision]:
    """Its decisions where every number of learners takes the recorded times, over and over, from `offset` on."""
    history, tuner = History.begin(1, 4, [max(recording)]), Tuner()
    at, decisions = dict.fromkeys(recording, offset), [decide(History.begin(1, 4), tuner)]
    while not decisions[-1].settled:
        decision, k = decisions[-1], decisions[-1].counts[0]
        meter = Meter(decision.span)
        while True:
            whole = recording[k][at[k] % len(recording[k])]
            at[k] += 1
            if meter.add(1e-5 * (whole - REST), 1e-5 * whole) and enough([meter.reading()], decision.span):
                break
        reading = meter.reading()
        assert reading is not None
        history = history.add(Window.of(decision, [reading]), tuner)
        decisions.append(decide(history, tuner))
    return decisions


@pytest.mark.parametrize("offset", range(0, 150, 10))
def test_resnet_20(offset: int) -> None:
    """Images/s of all the times: 532 with one learner, then 860, 522 and 534; with two 1,037 and later 585."""
    assert replayed(RESNET_20, offset)[-1].counts == (2,)


@pytest.mark.parametrize("offset", range(0, 150, 10))
def test_lenet(offset: int) -> None:
    """Batches/s: 379 with one learner, 257, 130: a second one makes it slower."""
    assert replayed(LENET, offset)[-1].counts == (1,)
