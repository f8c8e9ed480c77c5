"""What is decided from a history, by hand; and what no history, however strange, may bring about."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mpibow.tune import Cap, Counts, Decision, History, Tuner, decide
from mpibow.tune.decide import REPEATS
from mpibow.tune.look import RECHECKS
from tests.tune.windows import decided, history, one_rank, path, tuner_of, walk, window

ROOT = Path(__file__).parents[2]
TUNER = Tuner()
TWO = History.begin(2, 4)  # ranks


def test_what_is_settled_on_is_told_beside_the_best_of_the_others():
    """Where the last window was not of it, and does not mention it."""
    found = decide(history(*(window((k,), [time]) for k, time in ((1, 0.1), (2, 0.198), (2, 0.198), (3, 0.31)))), TUNER)
    assert found.counts == (1,)
    said = "learners 3: 39 images/s, 0.96 times those of 2; settled on 1: 40 images/s, 0.99 times those of 2"
    assert found.reason == said


def test_of_equals_every_process_names_the_same():
    """Two learners are as fast as one; strings have another order in every process."""
    code = "from tests.tune.windows import walk; print(walk([0.125, 0.25, 0.375, 0.5])[-1].reason)"
    for seed in "0123":
        env = {**os.environ, "PYTHONHASHSEED": seed}
        said = subprocess.check_output([sys.executable, "-c", code], env=env, cwd=ROOT, text=True)
        assert said == "learners 2: 32 images/s, 1.00 times those of 1; settled on 1\n"


def test_one_that_does_not_is_taken_back_after_another_did_not_either():
    """Two cores; the better of those that did not pay has a second chance."""
    found = walk([0.1, 0.105, 0.2, 0.22])
    assert path(found) == [1, 2, 3, 4, 4, 2]
    assert [decision.settled for decision in found] == [False] * 5 + [True]
    assert found[-1].reason == "learners 4: 73 images/s, 0.95 times those of 2; settled on 2"
    assert found[-1].span == TUNER.watching


@pytest.mark.parametrize(("cores", "asked"), [(1, [1, 2, 3, 3, 2]), (3, [1, 2, 3, 3, 2]), (4, [1, 2, 3, 4, 4, 2])])
def test_beyond_a_learner_a_core_the_first_that_does_not_help_is_the_last(cores, asked):
    """With a core each one dip does not stop it; and two on one core, which help, are gone beyond."""
    assert path(walk([0.1, 0.105, 0.2, 0.22], start=replace(History.begin(1, 4), cores=(cores,)))) == asked


def test_a_learner_without_a_core_must_bring_the_threshold_twice():
    """Three learners are 4 % or 8 % faster than two; with a core for the third 4 % are enough."""
    for gain, cores, settled in ((1.04, 3, 3), (1.04, 2, 2), (1.08, 2, 3)):
        begun = replace(History.begin(1, 4), cores=(cores,))
        assert path(walk([0.1, 0.1, 0.15 / gain, 0.3, 0.5], start=begun))[-1] == settled


def test_a_window_that_something_else_disturbed():
    """Another process took the core while 2 and 3 were tried for the first time."""
    tried = history(window((1,), [0.1]), window((2,), [0.2]), window((3,), [0.3]))
    assert path(walk([0.1, 0.1, 0.2, 0.3], start=tried)) == [2, 4, 4, 2]


@pytest.mark.parametrize(
    ("times", "tuner", "asked"),
    [
        ([0.1, 0.1, 0.25, 0.1, 0.2, 0.24, 0.3], TUNER, [1, 2, 3, 4, 5, 6, 5, 4]),  # a dip does not stop it
        ([0.1, 0.1, 0.2, 0.3, 0.4], tuner_of(patience=0), [1, 2, 3, 3, 2]),
        ([0.1, 0.1, 0.2, 0.3, 0.4], tuner_of(patience=2), [1, 2, 3, 4, 5, 3, 2]),
        ([0.1, 0.2, 0.3], TUNER, [1]),  # the fewest on a plateau
        ([0.1, 0.1, 0.15, 0.2], TUNER, [2]),
        ([0.1, 0.2 / 1.025, 0.4, 0.5], TUNER, [1]),  # two are 2.5 % faster: not worth it by 3 %,
        ([0.1, 0.2 / 1.025, 0.4, 0.5], Tuner(threshold=0.02), [2]),  # worth it by 2 %
    ],
)
def test_what_is_tried(times, tuner: Tuner, asked):
    assert path(walk(times, tuner))[-len(asked) :] == asked


def test_small_gains_add_up():
    """1.2 % for every learner up to 8: less than the threshold each, but not together; 6 are within 3 % of 8."""
    times = [0.1 * k / 1.012 ** (min(k, 8) - 1) for k in range(1, 11)]
    found = path(walk(times))
    assert max(found) == 9
    assert found[-1] == 6


def test_a_rank_tries_no_more_than_fits():
    assert decided(one_rank(0.1, 0.1, room=3)) == ((3,), False)
    found = decide(one_rank(0.1, 0.1, 0.1, room=3), TUNER)
    assert found.settled
    text = "learners 3: 120 images/s, 1.50 times those of 2; settled on 3; rank 0 has memory for 3"
    assert found.reason == text


def test_what_the_settings_allow_is_no_lack_of_memory():
    """Each cause that is reached is told, and none that is not."""

    def told(most: int = 64, room: int | None = None, *caps: Cap) -> str:
        decision = decide(replace(one_rank(0.1, 0.1, room=room), caps=caps), Tuner(most=most))
        assert (decision.counts, decision.settled) == ((2,), True)
        return decision.reason.removeprefix("learners 2: 80 images/s, 2.00 times those of 1; settled on 2")

    two, three = Cap(2, "rule.alpha 0.6 is stable with up to 2 learner(s) a rank"), Cap(3, "there are 3 chairs")
    assert told(most=2) == "; tuner.most is 2"
    assert told(2, 7) == "; tuner.most is 2"
    assert told(3, 2) == "; rank 0 has memory for 2"
    assert told(64, 3, two, three) == "; rule.alpha 0.6 is stable with up to 2 learner(s) a rank"
    assert told(2, 2, two) == f"; rank 0 has memory for 2; tuner.most is 2; {two.why}"


def test_a_cap_is_every_ranks():
    found = replace(
        history(window((1, 1), (0.1, 0.1)), window((2, 2), (0.1, 0.1)), room=(2, None)), caps=(Cap(3, "why"),)
    )
    assert decided(found) == ((2, 3), False)
    found = found.add(window((2, 3), (0.1, 0.1)), TUNER)
    decision = decide(found, TUNER)
    assert decision.reason.endswith("; settled on 2 + 3; rank 0 has memory for 2; why")
    assert decide(found.out_of_memory(1, 3), TUNER).counts == (2, 2)


def test_out_of_memory_where_it_was_to_try_more():
    """3 did not fit: 2 is settled on, without more windows."""
    assert decided(one_rank(0.1, 0.1).out_of_memory(0, 3)) == ((2,), True)


def test_out_of_memory_where_it_had_settled():
    """Something else took memory: back to what is known of fewer learners."""
    found = one_rank(0.1, 0.1, 0.1, 0.2, 0.3)
    found = found.add(window((3,), [0.1], settled=True), TUNER)
    assert decided(found) == ((3,), True)
    assert decided(found.out_of_memory(0, 3)) == ((2,), True)


def test_out_of_memory_where_nothing_is_known_of_fewer():
    found = history(window((5, 5), (0.1, 0.1), settled=True)).out_of_memory(0, 5)
    decision = decide(found, TUNER)
    assert (decision.counts, decision.settled) == ((4, 5), False)
    assert decision.reason == "starting with learners 4 + 5"


@pytest.mark.parametrize("room", [0, -1])
def test_a_rank_keeps_at_least_one_learner(room):
    assert decided(History((room,), 4)) == ((1,), False)
    assert decided(history(window((1,), [0.1]), room=[room])) == ((1,), True)


def test_ranks_need_not_be_alike():
    """Rank 0 is full with 2 learners, rank 1 with 4; their own curves say so although both are tried at once."""
    found = walk(lambda counts: [0.1 * max(1, counts[0] / 2) ** 2, 0.1 * max(1, counts[1] / 4) ** 2], start=TWO)
    asked = [decision.counts for decision in found]
    assert asked == [(1, 1), (2, 2), (3, 3), (4, 4), (2, 5), (2, 6), (2, 4), (2, 5), (2, 4)]


def test_what_the_curves_promise_is_settled_on_only_where_it_is_true():
    """As above, but 2 + 4 together are slow: they share something."""
    windows = [
        window((1, 1), (0.1, 0.1)),
        window((2, 2), (0.1, 0.1)),
        window((3, 3), (0.15, 0.1)),
        window((4, 4), (0.17, 0.1)),
        window((2, 5), (0.1, 0.3)),
        window((2, 6), (0.1, 0.3)),
    ]
    assert decided(history(*windows)) == ((2, 4), False)
    slow = window((2, 4), (0.1, 0.1), whole=0.3)
    assert decided(history(*windows, slow, windows[1], windows[3])) == ((5, 4), False)  # it goes on from 4 + 4


def test_promises_have_their_time():
    """2 + 1 would be best, but too many windows have gone by without anything new."""

    def own(counts: Counts) -> list[float]:
        return [0.1 * max(1, counts[0] / 2) ** 2, 0.1 * counts[1] ** 2]

    assert walk(own, start=TWO)[-1].counts == (2, 1)
    late = history(*[window((1, 1), own((1, 1)))] * (RECHECKS + 1))
    assert walk(own, start=late)[-1].counts == (1, 1)


def test_promises_know_what_hides_behind_no_rank():
    """0.1 s more for all: 3 + 2 (5 / 0.3) are better than 2 + 1 (3 / 0.2), without it they were not."""
    works = [((1, 1), (0.1, 0.1)), ((2, 2), (0.1, 0.2)), ((3, 3), (0.2, 0.3))]
    assert decided(history(*[window(counts, own) for counts, own in works])) == ((4, 1), False)
    shared = [window(counts, own, max(own) + 0.1) for counts, own in works]
    assert decided(history(*shared)) == ((4, 4), False)


def test_of_equally_many_the_fastest():
    """1 + 2 and 2 + 1 are within the threshold; more are no better."""
    times = {(1, 1): 0.1, (1, 2): 0.102, (2, 1): 0.1, (2, 2): 0.2, (3, 3): 0.5, (4, 4): 0.9}
    windows = [window(counts, (time, time)) for counts, time in times.items()]
    assert decided(history(*windows, *windows)) == ((2, 1), True)


def test_a_slow_rank_gets_fewer():
    """Rank 1 takes twice as long for everything: rank 0 has time for twice as many."""
    found = walk(lambda counts: [0.1 * max(1, counts[0] / 2), 0.2 * max(1, counts[1] / 2)], start=TWO)
    assert found[-1].counts == (4, 2)


def test_what_hides_behind_no_rank_counts():
    """Twice the work for twice the learners gains nothing, but where all share 0.1 s more: 2 / 0.3 > 1 / 0.2."""
    works = [0.1, 0.2, 0.4, 0.6]
    assert path(walk(works))[-1] == 1
    assert path(walk(works, rest=0.1))[-1] == 2


def test_what_is_too_close_to_tell_is_measured_again():
    """Two learners are 4 % faster, give or take 2 %."""
    works = {1: 0.1, 2: 0.2 / 1.04, 3: 0.4, 4: 0.6}
    found = history(*[window((k,), [work], error=0.02) for k, work in works.items()])
    asked = []
    while not (decision := decide(found, TUNER)).settled:
        asked.append(decision.counts[0])
        found = found.add(window(decision.counts, [works[asked[-1]]], error=0.02), TUNER)
    assert asked.count(1) == asked.count(2) == REPEATS - 1
    assert path(walk(list(works.values())))[4:] == [3, 1, 2]  # and but once where it is known well


def test_fewer_that_something_else_held_are_measured_again():
    """Two learners are the best; but while they were tried, something else made them a fifth slower."""
    works = {1: 0.1, 2: 0.12, 3: 0.2, 4: 0.25, 5: 0.4, 6: 0.6}
    held = history(*[window((k,), [work * (1.2 if k == 2 else 1)]) for k, work in works.items()])
    asked = path(walk(lambda counts: [works[counts[0]]], start=held))
    assert 2 in asked[:-1]
    assert asked[-1] == 2


def test_the_newest_wins_where_a_repeated_window_disagrees():
    """One learner took 0.1 s when it began, and takes 0.2 now: two, at 0.32, are better than that."""
    tried = [window((1,), [0.1]), window((2,), [0.32]), window((3,), [0.9]), window((2,), [0.32])]
    assert decided(history(*tried)) == ((1,), True)
    assert path(walk([0.2, 0.32, 0.9, 1.5], start=history(*tried, window((1,), [0.2]))))[-1] == 2


def test_it_stays_where_it_has_settled():
    """Later windows say that another count is a little better: no reason to change."""
    found = history(*one_rank(0.1, 0.1, 0.2, 0.3).windows, *[window((2,), [0.109], settled=True)] * 9)
    decision = decide(found, TUNER)
    assert decision == Decision((2,), True, "learners 2: 73 images/s; staying", TUNER.watching)
    assert decide(replace(found, why="rank 0 takes longer"), TUNER) == decision  # which was said when it began to look


def test_after_a_rank_slowed_down_it_has_less_to_do():
    """Rank 1 takes twice as long: it tries fewer where all wait for it, and rank 0 more."""
    found = history(*[window((2, 2), (0.1, 0.1), settled=True)] * 3)
    for _ in range(2):
        found = found.add(window((2, 2), (0.1, 0.2), settled=True), TUNER)
    decision = decide(found, TUNER)
    assert (decision.counts, decision.settled) == ((3, 1), False)
    why = "rank 1 takes 200 ms per iteration instead of 100"
    assert decision.reason == f"{why}; learners 2 + 2: 80 images/s; trying 3 + 1"


def test_counts_that_another_has_chosen_are_taken_as_they_are():
    """A run that was resumed with 4 learners looks at fewer, then at more."""
    assert decided(history(window((4,), [0.4]))) == ((3,), False)
    assert decided(history(window((4,), [0.4]), window((3,), [0.4]))) == ((2,), False)
    assert decided(history(window((4,), [0.4]), window((3,), [0.4]), window((2,), [0.4]))) == ((5,), False)


def test_where_nothing_that_ran_fits_any_more_the_curves_decide():
    """Also where there is no time to look twice."""
    tried = [window((1, 3), (0.1, 0.3)), window((3, 1), (0.3, 0.1))] * RECHECKS
    assert decided(history(*tried, room=(2, 2))) == ((2, 2), False)


# Whatever was measured

TIMES = st.floats(min_value=1e-9, max_value=1e9)  # a clock tells nothing shorter
ERRORS = st.floats(min_value=0.0, max_value=10.0)
TUNERS = st.builds(
    tuner_of,
    threshold=st.floats(0.001, 0.5),
    drift=st.floats(0.01, 1.0),
    patience=st.integers(0, 3),
    most=st.integers(1, 8),
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    ranks = draw(st.integers(1, 3))
    room = draw(st.tuples(*[st.none() | st.integers(1, 6)] * ranks))
    counts = st.tuples(*[st.integers(1, 6)] * ranks)
    one = st.builds(
        lambda counts, own, whole, error, settled: window(counts, own, whole, error=error, settled=settled),
        counts, st.tuples(*[TIMES] * ranks), TIMES, ERRORS, st.booleans(),
    )  # fmt: skip
    return History(room, draw(st.integers(1, 64)), tuple(draw(st.lists(one, max_size=12))), draw(st.integers(1, 30)))


@given(histories(), TUNERS)
@settings(max_examples=300)
def test_whatever_was_measured_the_decision_fits(found: History, tuner: Tuner):
    decision = decide(found, tuner)
    for k, room in zip(decision.counts, found.room, strict=True):
        assert 1 <= k <= min(room or tuner.most, tuner.most)
    assert "\n" not in decision.reason
    assert decide(found, tuner) == decision


@given(st.data(), TUNERS)
@settings(max_examples=60)
def test_it_always_settles(data: st.DataObject, tuner: Tuner):
    """Any times whatever for any counts: every window tries something new on a rank, or is one of a few."""
    ranks = data.draw(st.integers(1, 3))
    found = History.begin(ranks, 4)
    known = {}
    for _ in range(ranks * tuner.most + 8):
        decision = decide(found, tuner)
        if decision.settled:
            break
        if decision.counts not in known:
            known[decision.counts] = data.draw(st.tuples(*[st.floats(1e-6, 1e3)] * ranks))
        found = found.add(window(decision.counts, known[decision.counts], error=data.draw(ERRORS)), tuner)
    assert decide(found, tuner).settled


@given(st.data())
@settings(max_examples=60)
def test_what_it_settles_on_is_nearly_the_best_of_all(data: st.DataObject):
    """Curves that are flat up to a peak and then rise, as they are; the optimum of sum k / max t by trying all.

    Three learners in the time of two may only fit far beyond what was worth trying: 3 + 1 + 2 and then 6 + 3 + 4.
    """
    ranks, most, tuner = data.draw(st.integers(1, 3)), 8, Tuner(most=8)
    peaks = data.draw(st.tuples(*[st.integers(1, 8)] * ranks))
    slow = data.draw(st.tuples(*[st.sampled_from([1.0, 1.5, 2.0, 3.0])] * ranks))
    power = data.draw(st.sampled_from([1.0, 1.2, 2.0]))
    times = [[s * max(1.0, (k / p) ** power) for k in range(1, most + 1)] for s, p in zip(slow, peaks, strict=True)]

    def rate(counts: Counts) -> float:
        return sum(counts) / max(curve[k - 1] for curve, k in zip(times, counts, strict=True))

    found = History.begin(ranks, 4)
    while not (decision := decide(found, tuner)).settled:
        own = [curve[k - 1] for curve, k in zip(times, decision.counts, strict=True)]
        found = found.add(window(decision.counts, own), tuner)
    best = max(map(rate, product(range(1, most + 1), repeat=ranks)))
    assert rate(decision.counts) >= 0.9 * best
