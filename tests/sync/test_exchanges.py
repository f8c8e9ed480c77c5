"""What of an exchange learners on a GPU stood still for, from the times of events by hand."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from mpibow.cuda.times import Exchanges


@dataclass
class At:
    """An event that comes at `ms`."""

    ms: float
    timed: bool = True
    done: bool = True

    def synchronise(self) -> None:
        raise AssertionError("nothing is waited for")


@dataclass
class Clock:
    """A stream whose events come at the times that are given."""

    times: list[float] = field(default_factory=list)

    def record(self, *, timed: bool = False) -> At:
        return At(self.times.pop(0) if self.times else 0.0, timed)

    def milliseconds(self, begin: At, end: At) -> float:
        assert begin.timed
        assert end.timed
        return end.ms - begin.ms


def exchanges(*times: float) -> tuple[Exchanges, Clock]:
    clock = Clock(list(times))
    return Exchanges(clock), clock  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gradients", "still"),
    [
        ([130.0], 0.0),  # the exchange was over before
        ([120.0], 0.0),
        ([105.0], 0.015),
        ([105.0, 118.0], 0.002),  # one learner still computed
        ([90.0], 0.020),  # nothing was computed beside it: no more than it took
        ([], 0.020),
    ],
)
def test_learners_stand_still_from_their_last_gradient_to_the_end(gradients, still):
    """An exchange from 100 to 120 ms."""
    made, _ = exchanges(100.0, 120.0)
    made.begin()
    assert made.end().timed  # type: ignore[attr-defined]
    assert made.seconds() == (0.0, 0.0)
    made.joined([At(ms) for ms in gradients])
    assert made.seconds() == (pytest.approx(still), pytest.approx(0.020))
    made.joined([At(300.0)])  # again, before the next one: it counts once
    assert made.seconds() == (pytest.approx(still), pytest.approx(0.020))


def test_what_is_under_way_is_not_asked_for_times():
    made, _ = exchanges(0.0, 10.0, 20.0, 40.0)
    late = At(4.0, done=False)
    for gradient in (late, At(25.0)):
        made.begin()
        made.end()
        made.joined([gradient])
    assert made.seconds() == (0.0, 0.0)  # in their order
    late.done = True
    assert made.seconds() == (pytest.approx(0.006 + 0.015), pytest.approx(0.030))


def test_where_nothing_was_sent_nothing_is_counted():
    made, _ = exchanges()
    event: Any = made.end()
    assert not event.timed
    made.joined([At(1.0)])
    assert made.seconds() == (0.0, 0.0)
