"""The order of samples: every one exactly once an epoch, whatever happens on the way."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.data import Timeline, fixed
from mpibow.data.order import ROUNDS, SHUFFLED, by_index, order, samples_at

Sample = tuple[int, int]  # epoch and number


def stream(position: int, length: int, count: int, seed: int = 1) -> list[Sample]:
    epochs, samples = samples_at(position, length, count, seed)
    return list(zip(epochs.tolist(), samples.tolist(), strict=True))


def permutation(count: int, seed: int, epoch: int) -> np.ndarray:
    return order(count, seed, epoch)(np.arange(count))


def test_golden_order():
    """An order that changes silently would make no run repeatable."""
    assert permutation(100, 1, 0)[:10].tolist() == [92, 45, 60, 3, 20, 25, 44, 27, 0, 14]
    assert samples_at(0, 6, SHUFFLED + 1, 1)[1].tolist() == [9954, 26149, 14640, 10375, 20437, 50475]


def test_epochs_seeds_and_counts_have_orders_of_their_own():
    orders = [
        permutation(*of)[:10].tolist() for of in ((100, 1, 0), (100, 1, 1), (100, 2, 0), (101, 1, 0), (100, 0, 1))
    ]
    assert len({tuple(order) for order in orders}) == 5


def test_an_order_is_read_only():
    for each in samples_at(0, 10, 10, 1):
        assert each.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            each[0] = 1


@given(st.integers(1, 20), st.integers(0, 100), st.integers(1, 60))
def test_the_stream_is_the_epochs_in_a_row(count, position, length):
    whole = [(epoch, n) for epoch in range(161) for n in permutation(count, 1, epoch).tolist()]
    assert stream(position, length, count) == whole[position : position + length]


def test_far_positions():
    """Beyond 2^32 samples, as a long run on a large data set gets."""
    position = 7 * 10**9
    assert stream(position, 2, 1000) == [(7_000_000, int(n)) for n in permutation(1000, 1, 7_000_000)[:2]]


@pytest.mark.parametrize("length", [2, 96, 3000])
@pytest.mark.parametrize("count", [SHUFFLED, SHUFFLED + 1, 2**20 + 1])
def test_batches_lie_in_blocks(count, length):
    """Wherever one lies, across two epochs too, its samples are those of its places."""
    for position in (0, 12_345, 5 * count + 777, 3 * count - length // 2):
        epochs, places = np.divmod(np.arange(position, position + length), count)
        expected = np.concatenate([order(count, 1, int(each))(places[epochs == each]) for each in np.unique(epochs)])
        assert np.array_equal(samples_at(position, length, count, 1), [epochs, expected])


def keyed(places: np.ndarray, count: int, seed: int, rounds: int = ROUNDS) -> np.ndarray:
    return by_index(np.random.default_rng(seed).integers(0, 2**64, rounds, dtype=np.uint64), count, places)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 1000, SHUFFLED + 1, 2**20 + 1])
def test_a_permutation_by_index_has_every_sample_once(count):
    assert np.array_equal(np.sort(keyed(np.arange(count), count, 1)), np.arange(count))


def deviation(numbers: np.ndarray, count: int) -> float:
    """Chi-square of numbers that should be uniform below `count`, in its standard deviations from its mean."""
    seen, even = (np.bincount(each * 50 // count, minlength=50) for each in (numbers, np.arange(count)))
    expected = even * (len(numbers) / count)
    return float((((seen - expected) ** 2 / expected).sum() - 49) / 98**0.5)


def test_each_place_has_any_sample():
    found = np.array([keyed(np.array([0, 1, 499, 999]), 1000, seed) for seed in range(4000)])
    assert max(deviation(column, 1000) for column in found.T) < 5


def likeness(count: int, rounds: int, apart: int) -> float:
    """How far the differences of samples so far apart are from uniform, the mean of ten epochs."""
    epochs = [keyed(np.arange(min(count, 50_000)), count, seed, rounds) for seed in range(10)]
    return float(np.mean([deviation((each[apart:] - each[:-apart]) % count - 1, count - 1) for each in epochs]))


@pytest.mark.parametrize("count", [1000, SHUFFLED + 1, 2**20 + 1])
def test_neighbours_have_nothing_in_common(count):
    """Also those that share a digit. Two rounds are too few, and it shows."""
    for apart in (1, math.isqrt(count - 1) + 1):
        assert abs(likeness(count, ROUNDS, apart)) < 2
        assert likeness(count, 2, apart) > 20


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, Timeline, int]:
    """A number of samples, a timeline of changing learner counts over 1 to 3 ranks, and how many iterations to run."""
    count, batch, ranks = draw(st.integers(1, 30)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    counts = st.tuples(*[st.integers(1, 4)] * ranks)
    timeline, end = fixed(batch, draw(counts)), 0
    for _ in range(draw(st.integers(0, 4))):
        end += draw(st.integers(1, 5))
        timeline = timeline.announce(end, draw(counts))
    return count, timeline, end + draw(st.integers(1, 6))


def taken(timeline: Timeline, iteration: int, count: int) -> list[Sample]:
    """What all learners of all ranks take at `iteration`, each for itself: the j-th run of `batch`."""
    counts = timeline.counts(iteration)
    samples, learner = [], 0
    for rank_count in counts:
        for _ in range(rank_count):
            start = timeline.position(iteration) + learner * timeline.batch
            samples += stream(start, timeline.batch, count)
            learner += 1
    return samples


def exactly_once(samples: list[Sample], count: int) -> None:
    seen = Counter(samples)
    assert set(seen.values()) <= {1}
    whole, rest = divmod(len(samples), count)
    by_epoch = Counter(epoch for epoch, _ in samples)
    expected = dict.fromkeys(range(whole), count) | ({whole: rest} if rest else {})
    assert by_epoch == expected


@given(runs())
def test_every_sample_exactly_once_an_epoch(run: tuple[int, Timeline, int]):
    count, timeline, iterations = run
    exactly_once([s for t in range(iterations) for s in taken(timeline, t, count)], count)


@given(runs(), st.data())
def test_also_across_a_resume_with_other_learners(run: tuple[int, Timeline, int], data: st.DataObject):
    """At any iteration the run stops, and goes on with any counts from the position that it had."""
    count, timeline, iterations = run
    stop = data.draw(st.integers(0, iterations))
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    resumed = fixed(timeline.batch, counts, stop, timeline.position(stop))
    samples = [s for t in range(stop) for s in taken(timeline, t, count)]
    samples += [s for t in range(stop, stop + 5) for s in taken(resumed, t, count)]
    exactly_once(samples, count)
