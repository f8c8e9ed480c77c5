"""decide(history): which learners to run next. A pure function; the model is in the package's docstring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot

from mpibow.tune.history import Counts, Decision, History, Window, mean
from mpibow.tune.meter import Estimate
from mpibow.tune.settings import Tuner

REPEATS = 3  # windows of the same counts in a look
RECHECKS = 6  # windows of a look that try no new number of learners on any rank

Curve = Mapping[int, Estimate]  # learners of a rank -> seconds of an iteration if this rank were the slowest


@dataclass(frozen=True)
class Speed:
    """Learners' batches a second of all ranks, and its relative standard error."""

    rate: float
    error: float


def decide(history: History, tuner: Tuner) -> Decision:
    """The learners to run next, by rank, until the next window closes. Deterministic; never below one learner a rank.

    First every rank goes on beyond its share of the best so far, all ranks at once, until `patience` + 1 more (and,
    where speeds have changed, fewer) learners did not help. Then what the curves promise is tried, and what is too
    close to tell is measured again. At last the fewest learners whose measured speed is within `threshold` of the best.
    """
    windows = history.windows
    limits = [tuner.most if room is None else max(1, min(room, tuner.most)) for room in history.room]
    last = windows[-1].counts if windows else (1,) * len(limits)
    if windows and windows[-1].settled and _fits(last, limits):
        return Decision(last, True, f"{_told(history, {})}; staying", tuner.watching)
    curves = [_curve(windows, rank, limit, tuner) for rank, limit in enumerate(limits)]
    if not all(curves):  # nothing measured yet, or only what does not fit any more
        counts = tuple(min(k, limit) for k, limit in zip(last, limits, strict=True))
        return Decision(counts, False, f"starting with learners {_list(counts)}", tuner.looking)

    measured = {w.counts: _measured(windows, w.counts, tuner) for w in windows if _fits(w.counts, limits)}
    spare = RECHECKS - len(windows) + _widening(windows)
    promised = _promised(curves, tuner) if spare > 0 or not measured else {}
    speeds = {**promised, **measured}  # where both are known, what was measured
    chosen = _fewest(speeds, tuner.threshold)
    following = _wider(curves, _fewest(speeds, tuner.threshold / 2), limits, tuner)  # small gains add up
    if following is None and chosen not in measured:
        following = chosen
    if following is None and spare > 0:
        following = _doubtful(speeds, chosen, windows, tuner.threshold)
    told = _told(history, measured)
    if following is not None:
        return Decision(following, False, f"{told}; trying {_list(following)}", tuner.looking)
    full = [f"; rank {rank} has memory for {room}" for rank, room in enumerate(history.room) if chosen[rank] == room]
    return Decision(chosen, True, f"{told}; settled on {_list(chosen)}{''.join(full)}", tuner.watching)


def _fits(counts: Counts, limits: Sequence[int]) -> bool:
    return all(k <= limit for k, limit in zip(counts, limits, strict=True))


def _alike(estimates: Sequence[Estimate], tuner: Tuner) -> Estimate:
    """The mean of those that agree with the newest: where they do not, speeds have changed since."""
    new = estimates[-1]
    margin = tuner.drift * new.seconds
    return mean([e for e in estimates if abs(e.seconds - new.seconds) <= max(margin, 3 * hypot(e.error, new.error))])


def _curve(windows: Sequence[Window], rank: int, limit: int, tuner: Tuner) -> Curve:
    """t_r(k) + rest for the k <= limit that this rank has had."""
    found: dict[int, list[Estimate]] = {}
    for window in windows:
        own = window.own[rank]
        whole = Estimate(own.seconds + window.rest, max(own.error, window.whole.error))
        found.setdefault(window.counts[rank], []).append(whole)
    return {k: _alike(found[k], tuner) for k in sorted(found) if k <= limit}


def _measured(windows: Sequence[Window], counts: Counts, tuner: Tuner) -> Speed:
    whole = _alike([window.whole for window in windows if window.counts == counts], tuner)
    return Speed(sum(counts) / whole.seconds, whole.relative)


def _promised(curves: Sequence[Curve], tuner: Tuner) -> dict[Counts, Speed]:
    """The best counts for every length of an iteration: each rank has as many learners as it gets done in time."""
    speeds = {}
    for time in _levels([e.seconds for curve in curves for e in curve.values()], tuner.precision):
        counts = tuple(max((k for k, e in curve.items() if e.seconds <= time), default=0) for curve in curves)
        if min(counts) >= 1:
            whole = _slowest(curves, counts)
            speeds[counts] = Speed(sum(counts) / whole.seconds, whole.relative)
    return speeds


def _levels(times: Sequence[float], margin: float) -> list[float]:
    """The largest of every group of times that differ by no more than a `margin`: no rank is left behind by chance."""
    first, levels = 0.0, list[float]()
    for time in sorted(times):
        if levels and time <= first * (1 + margin):
            levels[-1] = time
        else:
            first = time
            levels.append(time)
    return levels


def _slowest(curves: Sequence[Curve], counts: Counts) -> Estimate:
    return max((curve[k] for curve, k in zip(curves, counts, strict=True)), key=lambda e: e.seconds)


def _fewest(speeds: Mapping[Counts, Speed], threshold: float) -> Counts:
    """The fewest learners that are as good as the best, but for the threshold; of equally many the fastest."""
    enough = (1 - threshold) * max(speed.rate * (1 - speed.error) for speed in speeds.values())
    good = [counts for counts, speed in speeds.items() if speed.rate >= enough]
    return min(good, key=lambda counts: (sum(counts), -speeds[counts].rate))


def _wider(curves: Sequence[Curve], chosen: Counts, limits: Sequence[int], tuner: Tuner) -> Counts | None:
    """Counts that no rank has had yet, next to those it has had; None where every rank has gone far enough."""
    reach = tuner.patience + 1
    waited_for = _slowest(curves, chosen).seconds / (1 + tuner.drift)  # nearly: the next may be who all wait for then
    counts = list(chosen)
    for rank, (curve, k) in enumerate(zip(curves, chosen, strict=True)):
        low, high = min(curve), max(curve)
        if curve[k].seconds >= waited_for and low > max(1, k - reach):  # fewer only where all wait for this rank
            counts[rank] = low - 1
        elif high < min(limits[rank], k + reach):
            counts[rank] = high + 1
    return None if tuple(counts) == chosen else tuple(counts)


def _doubtful(
    speeds: Mapping[Counts, Speed], chosen: Counts, windows: Sequence[Window], threshold: float
) -> Counts | None:
    """Counts to be measured again before `chosen` is settled on; None where all is clear.

    Those with fewer learners that two standard errors keep from being good enough, and the best: up to REPEATS windows.
    The best of those with more learners: once more in any case, since something else may have held the device then.
    """
    best = max(speeds, key=lambda counts: speeds[counts].rate)
    enough = (1 - threshold) * speeds[best].rate
    close = [
        counts
        for counts, speed in speeds.items()
        if (sum(counts) < sum(chosen) or counts == chosen)
        and abs(speed.rate - enough) < 2 * hypot(speed.error, speeds[best].error) * enough
    ]
    tried = [window.counts for window in windows]
    again = [counts for counts in {*close, best} if close and tried.count(counts) < REPEATS]
    more = [counts for counts in speeds if sum(counts) > sum(chosen)]
    rival = max(more, key=lambda counts: speeds[counts].rate, default=chosen)
    if rival != chosen and tried.count(rival) < 2:
        return rival
    return max(again, key=lambda counts: (speeds[counts].error, counts), default=None)


def _widening(windows: Sequence[Window]) -> int:
    """How many windows tried a number of learners that was new to a rank."""
    seen = set[tuple[int, int]]()
    count = 0
    for window in windows:
        new = set(enumerate(window.counts)) - seen
        seen |= new
        count += bool(new)
    return count


def _told(history: History, measured: Mapping[Counts, Speed]) -> str:
    """The last window in words, beside the best of the others."""
    last = history.windows[-1].counts
    rate = sum(last) / history.windows[-1].whole.seconds
    text = f"learners {_list(last)}: {history.batch * rate:,.0f} images/s"
    others = {counts: speed.rate for counts, speed in measured.items() if counts != last}
    if others:
        best = max(others, key=lambda counts: others[counts])
        return f"{text}, {rate / others[best]:.2f} times those of {_list(best)}"
    return f"{history.why}; {text}" if history.why and not history.windows[-1].settled else text


def _list(counts: Counts) -> str:
    return " + ".join(map(str, counts))
