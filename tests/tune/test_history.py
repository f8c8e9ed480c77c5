"""What a history keeps, when it forgets, and that it survives JSON."""

import json
from dataclasses import asdict, replace

import pytest

from mpibow.config import build
from mpibow.tune import Cap, Counts, Decision, History, Reading, Tuner, Window, WindowSpan
from mpibow.tune.history import ANCHORS, LONGEST
from mpibow.tune.meter import Estimate
from tests.tune.windows import history, tuner_of, window

TUNER = Tuner()


def watched(*times: tuple[float, ...], counts: Counts = (1, 1), error: float = 0.0) -> list[Window]:
    return [window(counts, own, error=error, settled=True) for own in times]


def grown(start: History, *windows: Window) -> History:
    for one in windows:
        start = start.add(one, TUNER)
    return start


def test_a_window_of_all_ranks_readings():
    """The whole is the slowest rank's."""
    decision = Decision((2, 1), True, "", WindowSpan(1, 2, 0.01))
    first = Reading(Estimate(0.2, 0.01), Estimate(0.4, 0.02), 40.0)
    second = Reading(Estimate(0.3, 0.03), Estimate(0.5, 0.01), 40.0)
    found = Window.of(decision, [first, second])
    assert found == Window((2, 1), (first.own, second.own), second.whole, True)
    assert found.rest == pytest.approx(0.2)


def test_no_rank_takes_longer_than_all_do():
    assert window((1, 1), (0.3, 0.5), whole=0.4).rest == 0.0


def test_a_slower_rank_is_a_reason_to_look_again():
    settled = history(*watched((0.1, 0.1), (0.1, 0.1)))
    once = grown(settled, *watched((0.1, 0.12)))
    assert (once.looks, len(once.windows)) == (1, 3)
    twice = grown(once, *watched((0.1, 0.14)))
    assert twice.windows == tuple(replace(w, settled=False) for w in watched((0.1, 0.12), (0.1, 0.14)))
    assert (twice.looks, twice.why) == (2, "rank 1 takes 130 ms per iteration instead of 100")


def test_a_faster_rank_is_one_as_well():
    found = grown(history(*watched((0.1, 0.1))), *watched((0.08, 0.1), (0.08, 0.1)))
    assert (found.looks, found.why) == (2, "rank 0 takes 80 ms per iteration instead of 100")


def test_all_together_may_be_slower_where_no_rank_is():
    def waiting(whole: float) -> Window:
        return window((1, 1), (0.1, 0.1), whole, settled=True)

    found = grown(history(waiting(0.12)), waiting(0.15), waiting(0.15))
    assert (found.looks, found.why) == (2, "the whole iteration takes 150 ms per iteration instead of 120")


@pytest.mark.parametrize(
    "later",
    [
        [(0.1, 0.109), (0.1, 0.109)],  # too little
        [(0.1, 0.2), (0.1, 0.1), (0.1, 0.2)],  # not two in a row
        [(0.1, 0.2), (0.1, 0.05)],  # once slower, once faster
        [(0.2, 0.1), (0.1, 0.2)],  # once one, once the other
    ],
)
def test_what_is_no_reason(later):
    before = history(*watched((0.1, 0.1), *[(0.1, 0.1)] * ANCHORS))
    before = replace(before, windows=tuple(replace(w, whole=Estimate(0.3, 0.0)) for w in before.windows))
    after = [replace(w, whole=Estimate(0.3, 0.0)) for w in watched(*later)]
    assert grown(before, *after).looks == 1


def test_noise_is_no_reason():
    """20 % slower or faster is no news where the error is 4 %: less than 10 % and three errors."""
    for times in ([(0.1, 0.1), (0.1, 0.12), (0.1, 0.12)], [(0.12, 0.1), (0.1, 0.1), (0.1, 0.1)]):
        assert grown(history(), *watched(*times, error=0.04)).looks == 1
        assert grown(history(), *watched(*times, error=0.02)).looks == 2


def test_a_slow_drift_adds_up():
    """2 % more in every window: later ones are compared with the first, not with each other."""
    times = [(0.1 * 1.02**i, 0.1) for i in range(12)]
    assert grown(history(), *watched(*times)).looks == 2


def test_a_window_of_other_counts_is_none_of_those_that_must_have_changed():
    one, other, slow = (window((k,), [time]) for k, time in ((2, 0.1), (3, 0.2), (2, 0.12)))
    assert grown(history(one), other, slow).looks == 1
    assert grown(history(one), other, slow, slow).looks == 2


def test_other_counts_are_no_drift():
    one, two = watched((0.1, 0.1)), watched((0.2, 0.2), (0.2, 0.2), counts=(2, 2))
    assert grown(history(*one), *two) == replace(history(*one, *two), calm=2)


def test_it_takes_longer_to_look_again_every_time():
    """A speed that comes and goes is not followed for ever."""
    found, needed = history(*watched((0.1, 0.1), (0.1, 0.1))), []
    for look in range(12):
        time = 0.1 if look % 2 else 0.2
        for windows in range(1, 20):
            found = found.add(watched((time, 0.1))[0], TUNER)
            if found.looks == look + 2:
                needed.append(windows)
                assert len(found.windows) == 2  # so that the new look has as many to spare as the first
                break
    assert needed == [2, 3, 4, 5, 6, 7, 8, 9, LONGEST, LONGEST, LONGEST, LONGEST]


def rested(found: History) -> tuple[int, History]:
    """Windows in which nothing changes, until it looks again."""
    last = replace(found.windows[-1], settled=True)
    for windows in range(1, 1000):
        found = found.add(last, TUNER)
        if not found.windows[-1].settled:
            return windows, found
    raise AssertionError("it never looks again")


def test_it_looks_again_though_nothing_has_changed():
    """Ever more rarely, and with no fewer looks to spare for what does change."""
    one, two = watched((0.1, 0.1)), window((2, 2), (0.2, 0.2))
    found, pauses, whys = history(two).add(one[0], TUNER), [], []
    for _ in range(7):
        windows, found = rested(found)
        assert found.windows == (replace(one[0], settled=False),) * 2
        pauses.append(windows)
        whys.append(found.why)
        found = found.add(two, TUNER).add(one[0], TUNER)  # it settles on the same
    assert pauses == [12 - 1, 24 - 1, 48 - 1, 96 - 1, 192 - 1, 192 - 1, 192 - 1]
    assert whys[:2] == ["no change for 60 s or more", "no change for 120 s or more"]
    assert found.looks == 1


def test_what_begins_at_the_first_pause_again():
    def looked(after: History) -> int:
        return rested(after)[0]

    one, two = watched((0.1, 0.1)), watched((0.1, 0.1), counts=(2, 2))
    late = history(*one)
    for _ in range(3):
        late = rested(late)[1]
    assert looked(late) == 96
    assert looked(late.add(two[0], TUNER)) == 12 - 1  # another number was better
    slower = grown(late, *one, *watched((0.2, 0.1), (0.2, 0.1)))
    assert (slower.looks, looked(slower)) == (2, 12)
    assert looked(late.anew([window((1, 1), (0.1, 0.1))])) == 12  # in another execution


def test_pauses_follow_the_settings():
    one = watched((0.1, 0.1))
    for tuner, windows in ((tuner_of(again=20.0), 4), (tuner_of(watch=20.0), 3), (tuner_of(again=1e-9), 2)):
        found, n = history(*one), 0
        while not n or found.windows[-1].settled:
            found, n = found.add(one[0], tuner), n + 1
        assert n == windows


def test_windows_of_a_look_are_not_calm():
    """11 before memory ran short, and then from 1 on."""
    one = watched((0.1, 0.1))
    found = grown(history(*one), *one * 11, window((2, 2), (0.2, 0.2)))
    assert rested(grown(found, *one))[0] == 12 - 1


def test_a_long_run_does_not_fill_the_memory():
    tried = [window((1, 1), (0.1, 0.1)), window((2, 2), (0.15, 0.15)), window((3, 3), (0.4, 0.4))]
    times = [(0.15 + 1e-4 * i, 0.15) for i in range(40)]
    found = history(*tried)
    for one in watched(*times, counts=(2, 2)):
        found = found.add(one, tuner_of(again=1e9))
    assert len(found.windows) == 3 + ANCHORS + LONGEST
    assert found.windows[:3] == tuple(tried)
    kept = [*times[:ANCHORS], *times[-LONGEST:]]
    assert [w.own[0].seconds for w in found.windows[3:]] == [pytest.approx(own[0]) for own in kept]


def test_what_does_not_fit_is_not_tried_again():
    start = History((None, 8, 2), 4)
    assert start.out_of_memory(0, 5).room == (4, 8, 2)
    assert start.out_of_memory(1, 5).room == (None, 4, 2)
    assert start.out_of_memory(2, 5).room == (None, 8, 2)  # what is known to be less stays
    assert start.out_of_memory(0, 1).room == (1, 8, 2)  # a rank keeps at least one learner


def test_it_survives_json():
    start = replace(History((None, 3), 4), caps=(Cap(7, "of a rule"),))
    found = grown(start, *watched((0.1, 0.1), (0.1, 0.2), (0.1, 0.2), error=0.01))
    found = grown(found, *watched((0.1, 0.2)))
    found = replace(found, vain=3)
    assert (found.looks, found.calm) == (2, 1)
    assert build(History, json.loads(json.dumps(asdict(found)))) == found
    assert build(History, json.loads(json.dumps(asdict(History.begin(1, 4))))) == History.begin(1, 4)


def test_what_older_checkpoints_hold():
    """No caps, and not how long it had been calm."""
    found = history(window((2,), [0.1], error=0.01))
    plain = asdict(found)
    del plain["caps"], plain["calm"], plain["vain"]
    assert build(History, plain) == found
