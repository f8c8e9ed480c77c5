"""Which of two executions is kept, from windows by hand."""

import pytest
from hypothesis import given, strategies as st

from mpibow.run.tuning import Trial, compare
from mpibow.tune import Decision, Tuner
from tests.tune.windows import window

TUNER = Tuner()


def trial(*times: float, error: float = 0.001, first: str = "streams", counts: tuple[int, ...] = (3,)) -> Trial:
    """Of `times` in turn, seconds of an iteration; batches of 4."""
    found, names = Trial(counts, 4, first), (first, "fused" if first == "streams" else "streams")
    for i, time in enumerate(times):
        found = found.add(names[i % 2], window(counts, [time] * len(counts), error=error))
    return found


def test_what_runs_is_measured_first():
    assert compare(trial(), TUNER) == Decision((3,), False, "trying streams", TUNER.looking, "streams")
    assert compare(trial(first="fused"), TUNER) == Decision((3,), False, "trying fused", TUNER.looking, "fused")


def test_they_take_turns_until_each_was_measured_twice():
    found = [compare(trial(*[0.02, 0.01, 0.02, 0.01][:n]), TUNER) for n in range(5)]
    assert [(each.execution, each.settled) for each in found] == [
        ("streams", False), ("fused", False), ("streams", False), ("fused", False), ("fused", True),
    ]  # fmt: skip
    assert [each.reason for each in found[1:]] == [
        "learners 3, streams: 600 images/s; trying fused",
        "learners 3, fused: 1,200 images/s, 2.00 times those of streams; trying streams",
        "learners 3, streams: 600 images/s, 0.50 times those of fused; trying fused",
        "learners 3, fused: 1,200 images/s, 2.00 times those of streams; settled on fused",
    ]
    assert [each.span for each in found] == [TUNER.looking] * 4 + [TUNER.watching]


@pytest.mark.parametrize(
    ("times", "error", "kept"),
    [
        ((0.02, 0.01), 0.001, "fused"),
        ((0.01, 0.02), 0.001, "streams"),
        ((0.0100, 0.0099), 0.001, "fused"),  # 1 %, and 0.2 % two standard errors
        ((0.01, 0.01), 0.001, "streams"),
    ],
)
@pytest.mark.parametrize("first", ["streams", "fused"])
def test_the_faster_one_stays(times, error, kept, first):
    turns = times if first == "streams" else times[::-1]
    found = compare(trial(*turns * 3, error=error, first=first), TUNER)
    assert (found.execution, found.settled) == (kept, True)


def test_what_is_close_is_measured_once_more_and_then_streams_stay():
    """3 % apart: two standard errors are 2 x 0.02 x 0.01, twice over sqrt(2), for two means of two each: 4 %."""
    found = trial(*[0.0100, 0.0097] * 2, error=0.02)
    assert (compare(found, TUNER).execution, compare(found, TUNER).settled) == ("streams", False)
    found = trial(*[0.0100, 0.0098] * 3, error=0.02)
    assert (compare(found, TUNER).execution, compare(found, TUNER).settled) == ("streams", True)


def test_ranks_wait_for_the_slowest():
    counts = (2, 3)
    found = Trial(counts, 4)
    for name, own in [("streams", [0.01, 0.03]), ("fused", [0.02, 0.02])] * 2:
        found = found.add(name, window(counts, own, error=0.001))
    assert compare(found, TUNER).execution == "fused"
    assert compare(found, TUNER).reason == (
        "learners 2 + 3, fused: 1,000 images/s, 1.50 times those of streams; settled on fused"
    )


@given(st.lists(st.floats(1e-4, 1.0), min_size=6, max_size=6), st.floats(1e-4, 0.2))
def test_it_ends_and_fused_learners_are_never_kept_where_they_are_slower(times, error):
    ends = [n for n in range(7) if compare(trial(*times[:n], error=error), TUNER).settled]
    assert ends[:1] in ([4], [6])
    found = times[: ends[0]]
    if compare(trial(*found, error=error), TUNER).execution == "fused":
        assert sum(found[1::2]) < sum(found[::2])
