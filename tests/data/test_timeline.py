"""Timelines: learners and positions before, at and after each change."""

import pytest

from mpibow.data import Change, Timeline, fixed


def example() -> Timeline:
    """Batches of 4: (1, 2) learners from iteration 0, (2, 2) from 10, (1, 1) from 11."""
    return fixed(4, (1, 2)).announce(10, (2, 2)).announce(11, (1, 1))


@pytest.mark.parametrize(
    ("iteration", "counts", "position"),
    [
        (0, (1, 2), 0),
        (1, (1, 2), 12),
        (9, (1, 2), 108),
        (10, (2, 2), 120),
        (11, (1, 1), 136),
        (12, (1, 1), 144),
        (1011, (1, 1), 8136),
    ],
)
def test_by_hand(iteration, counts, position):
    timeline = example()
    assert timeline.counts(iteration) == counts
    assert timeline.position(iteration) == position


def test_a_position_is_the_sum_of_all_batches_before():
    timeline, position = example(), 0
    for t in range(30):
        assert timeline.position(t) == position
        position += 4 * sum(timeline.counts(t))


def test_how_learners_run_stays_until_something_else_is_said():
    timeline = fixed(4, (2,), execution="streams").announce(5, (3,)).announce(9, (3,), "fused").announce(12, (2,))
    assert [timeline.change(t).execution for t in (0, 5, 8, 9, 12)] == [
        "streams",
        "streams",
        "streams",
        "fused",
        "fused",
    ]
    assert timeline.position(12) == 4 * (5 * 2 + 7 * 3)
    assert timeline.executed(("fused", "streams")) == timeline
    assert [change.execution for change in timeline.executed(("fused",)).changes] == ["fused"] * 4
    assert [change.execution for change in timeline.executed(()).changes] == [""] * 4


def test_a_resumed_run():
    """Where it starts is no change: nothing restarts there."""
    timeline = fixed(8, (3,), 50, 1000).announce(52, (1,))
    assert timeline.position(50) == 1000
    assert timeline.position(51) == 1024
    assert timeline.position(53) == 1056


@pytest.mark.parametrize(("begin", "first"), [(-1, 0), (0, 0), (9, 0), (10, 1), (11, 2), (12, 2)])
def test_what_has_passed_is_left_out(begin, first):
    """It begins with the change that holds at `begin`, and nothing that is asked for from there on is another."""
    whole, part = example(), example().since(begin)
    assert part.changes == whole.changes[first:]
    assert [part.change(t) for t in range(max(begin, 0), 20)] == [whole.change(t) for t in range(max(begin, 0), 20)]
    assert [part.position(t) for t in range(max(begin, 0), 20)] == [whole.position(t) for t in range(max(begin, 0), 20)]


def test_what_was_left_out_is_not_asked_for():
    with pytest.raises(AssertionError, match="iteration 9 lies before the timeline"):
        example().since(10).change(9)


@pytest.mark.parametrize("cut", range(-1, 14))
def test_what_is_to_come_is_left_out_and_follows_again(cut):
    if cut >= 0:
        assert all(change.iteration <= cut for change in example().until(cut).changes)
        assert example().until(cut).followed(example()) == example()
    assert example().followed(example()) == example()


def test_what_follows_has_positions_of_its_own():
    """Another run's learners from iteration 10 on, in a stream that this run has come further in."""
    timeline = fixed(8, (3, 3), 10, 5000).followed(example())
    assert timeline.changes == (Change(10, 5000, (3, 3)), Change(11, 5048, (1, 1)))


@pytest.mark.parametrize(
    ("iteration", "counts"), [(11, (2, 2)), (5, (2, 2)), (12, (2,)), (12, (2, 2, 2)), (12, (2, 0)), (12, (0, 2))]
)
def test_what_may_not_be_announced(iteration, counts):
    with pytest.raises(AssertionError):
        example().announce(iteration, counts)
