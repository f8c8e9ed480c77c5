"""What it makes of real times, as bad as they were."""

from __future__ import annotations

import pytest

from mpibow.tune import Decision, History, Meter, Tuner, Window, decide, enough
from tests.tune.recorded import LENET, REST, Recording


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
        history = history.add(Window.of(decision, [reading]), tuner)
        decisions.append(decide(history, tuner))
    return decisions


@pytest.mark.parametrize("offset", range(0, 150, 10))
def test_the_best_is_found(offset: int) -> None:
    """A second learner makes it slower."""
    assert replayed(LENET, offset)[-1].counts == (1,)
