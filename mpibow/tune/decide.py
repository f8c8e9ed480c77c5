"""decide(history): the learners to run next. A pure function; the model is in the package's docstring."""

from collections.abc import Mapping, Sequence
from itertools import starmap
from math import hypot

from .history import Cap, Counts, Decision, History
from .look import Look, Speed, fits, slowest
from .tuner import Tuner
from .words import as_sum, shortened, told

REPEATS = 3  # windows of the same counts in a look


def decide(history: History, tuner: Tuner) -> Decision:
    """The learners to run next, by rank, until the next window closes. Deterministic; never below one learner a rank.

    First every rank goes on beyond its share of the best so far, all ranks at once, until `patience` + 1 more (and,
    where speeds have changed, fewer) learners did not help; beyond one learner a core until one more did not. Then it
    tries the counts that the curves predict as best, and measures close ones again. It settles on the fewest learners
    whose measured speed is within `threshold` of the best. They stay until the history has dropped their windows; then
    it goes on from them, beyond and below.
    """
    caps = (Cap(tuner.most, f"tuner.most is {tuner.most}"), *history.caps)
    most = min(cap.most for cap in caps)  # of every rank
    limits = tuple(most if fitting is None else max(1, min(fitting, most)) for fitting in history.room)
    last = history.windows[-1] if history.windows else None
    if last and last.settled and fits(last.counts, limits):
        return Decision(last.counts, True, f"{_told(history, {})}; staying", tuner.watching)
    look = Look.of(history.windows, limits, history.cores or (None,) * len(limits), tuner)
    if not all(look.curves):  # nothing measured yet, or only counts that do not fit any more
        counts = tuple(min(last.counts[rank] if last else 1, limit) for rank, limit in enumerate(limits))
        return Decision(counts, False, f"starting with learners {as_sum(counts)}", tuner.looking)

    text = _told(history, look.measured)
    chosen = look.chosen
    following = _wider(look)
    if following is None and chosen not in look.measured:  # the curves' prediction alone must be measured first
        following = chosen
    if following is None and look.may_recheck:
        following = _rival(look) or _close(look)
    if following is not None:
        return Decision(following, False, f"{text}; trying {as_sum(following)}", tuner.looking)
    reasons = [text, _settled(history, look), *_reached(chosen, history.room, caps)]
    return Decision(chosen, True, "; ".join(reasons), tuner.watching)


def _wider(look: Look) -> Counts | None:
    """For every rank the next number that it has not had yet; None if all have gone far enough.

    Far enough is `patience` + 1 beyond its share of the best so far, 1 where that has a learner for every core: they
    seldom gain, and each number that is tried may seem to by chance. The best is found by half the threshold, so that
    small gains add up.
    """
    share = look.fewest(look.tuner.threshold / 2)
    reach = look.tuner.patience + 1
    # A rank that is nearly as slow may be the slowest next time
    nearly = slowest(look.curves, share).seconds / (1 + look.tuner.drift)
    changed = {}
    for rank, (curve, k, limit) in enumerate(zip(look.curves, share, look.limits, strict=True)):
        low = min(curve)
        high = max(curve)
        furthest = max(k + 1, min(k + reach, look.cores[rank] or k + reach))
        all_wait_for_it = curve[k].seconds >= nearly
        if all_wait_for_it and low > max(1, k - reach):  # fewer do not help while all wait for another rank
            changed[rank] = low - 1
        elif high < min(limit, furthest):
            changed[rank] = high + 1
    return tuple(starmap(changed.get, enumerate(share))) if changed else None


def _rival(look: Look) -> Counts | None:
    """The best with more learners than `chosen`, then those with fewer that are nearly as fast: to be measured again in
    any case, as something else may have held the device the first time.
    """
    total = sum(look.chosen)
    rates = {counts: speed.rate for counts, speed in look.speeds.items()}
    nearly = (1 - 2 * look.tuner.drift) * rates[look.chosen]
    more = max((k for k in rates if sum(k) > total), key=rates.__getitem__, default=None)
    if more is not None and look.tried.count(more) < 2:
        return more
    fewer = [k for k in rates if sum(k) < total and rates[k] > nearly and look.tried.count(k) == 1]
    return max(fewer, key=rates.__getitem__, default=None)


def _close(look: Look) -> Counts | None:
    """Counts to measure again, as two standard errors leave open whether `chosen`, or fewer learners, are good enough.

    The least precise of these counts and of the best that they are compared with. Each has up to REPEATS windows.
    """
    speeds = look.speeds
    best = look.speeds[look.best]
    needed = (1 - look.tuner.threshold) * best.rate
    close = [
        counts
        for counts, speed in speeds.items()
        if (counts == look.chosen or sum(counts) < sum(look.chosen))
        and abs(speed.rate - needed) < 2 * hypot(speed.relative, best.relative) * needed
    ]
    if not close:
        return None
    again = [counts for counts in {*close, look.best} if look.tried.count(counts) < REPEATS]
    return max(again, key=lambda counts: (speeds[counts].relative, counts), default=None)


def _reached(counts: Counts, room: Sequence[int | None], caps: Sequence[Cap]) -> list[str]:
    """The limits that keep a rank from more learners, in words."""
    full = [f"rank {rank} has memory for {k}" for rank, k in enumerate(counts) if k == room[rank]]
    return shortened(full, "ranks") + [cap.why for cap in caps if cap.most == max(counts)]


def _settled(history: History, look: Look) -> str:
    """The log's text of the settled learners, and of their speed beside the best of the others if `_told` lacks it."""
    own = as_sum(look.chosen)
    rates = {as_sum(k): history.batch * speed.rate for k, speed in look.measured.items()}
    last = as_sum(history.windows[-1].counts)
    others = [name for name in rates if name != last]
    if own in (last, max(others, key=rates.__getitem__, default=last)):
        return f"settled on {own}"
    return "settled on " + told(own, rates.pop(own), rates)


def _told(history: History, measured: Mapping[Counts, Speed]) -> str:
    """The last window in words, beside the best of the others."""
    last = history.windows[-1]
    others = {as_sum(counts): history.batch * speed.rate for counts, speed in measured.items() if counts != last.counts}
    text = told(f"learners {as_sum(last.counts)}", history.batch * sum(last.counts) / last.whole.seconds, others)
    return f"{history.why}; {text}" if history.why and not (others or last.settled) else text
