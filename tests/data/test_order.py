"""The order of samples: every one exactly once an epoch, whatever happens on the way."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpibow.data.order import ROUNDS, SHUFFLED, by_index, order, permutation, samples_at
from mpibow.data.timeline import Timeline, fixed

Sample = tuple[int, int]  # epoch and number


def stream(position: int, length: int, count: int, seed: int = 1) -> list[Sample]:
    epochs, samples = samples_at(position, length, count, seed)
    return list(zip(epochs.tolist(), samples.tolist(), strict=True))


def test_golden_order():
    """An order that changes silently would make no run repeatable."""
    assert permutation(100, 1, 0)[:10].tolist() == [92, 45, 60, 3, 20, 25, 44, 27, 0, 14]
    assert samples_at(0, 6, SHUFFLED + 1, 1)[1].tolist() == [15223, 51290, 50334, 24219, 61944, 40706]


@given(st.integers(1, 200), st.integers(0, 2**32 - 1), st.integers(0, 1000))
def test_an_epoch_holds_every_sample_once(count: int, seed: int, epoch: int):
    assert sorted(permutation(count, seed, epoch).tolist()) == list(range(count))


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
def test_the_stream_is_the_epochs_in_a_row(count: int, position: int, length: int):
    whole = [(epoch, n) for epoch in range(161) for n in permutation(count, 1, epoch).tolist()]
    assert stream(position, length, count) == whole[position : position + length]


def test_far_positions():
    """Beyond 2^32 samples, as a long run on a large data set gets."""
    position = 7 * 10**9
    assert stream(position, 2, 1000) == [(7_000_000, int(n)) for n in permutation(1000, 1, 7_000_000)[:2]]


@pytest.mark.parametrize("length", [2, 96, 3000])
@pytest.mark.parametrize("count", [SHUFFLED, SHUFFLED + 1, 2**20 + 1])
def test_a_large_set_in_blocks(count: int, length: int):
    """Wherever a batch lies, its samples are those of its places; two epochs meet in the last."""
    for position in (0, 12_345, 5 * count + 777, 3 * count - length // 2):
        epochs, places = np.divmod(np.arange(position, position + length), count)
        expected = np.concatenate([order(places[epochs == each], count, 1, int(each)) for each in np.unique(epochs)])
        found = samples_at(position, length, count, 1)
        assert np.array_equal(found[0], epochs)
        assert np.array_equal(found[1], expected)


def keyed(seed: int, rounds: int = ROUNDS) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, rounds, dtype=np.uint64)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 1000, SHUFFLED + 1, 2**20 + 1])
def test_a_permutation_by_index_has_every_sample_once(count: int):
    assert np.array_equal(np.sort(by_index(np.arange(count), count, keyed(count))), np.arange(count))


def deviation(numbers: np.ndarray, count: int, bins: int = 50) -> float:
    """Chi-square of numbers in [0, count) that should be uniform, in its standard deviations from its mean."""
    seen = np.bincount(numbers * bins // count, minlength=bins)
    expected = np.bincount(np.arange(count) * bins // count) * (len(numbers) / count)
    return float(((seen - expected) ** 2 / expected).sum() - (bins - 1)) / (2 * (bins - 1)) ** 0.5


def test_each_place_has_any_sample():
    """By many keys: of a thousand samples, which is no power of two."""
    at = np.array([0, 1, 499, 500, 999])
    found = np.array([by_index(at, 1000, keyed(seed)) for seed in range(4000)])
    assert max(deviation(found[:, n], 1000) for n in range(len(at))) < 5


def neighbours(count: int, rounds: int) -> float:
    """How far the differences of samples in a row are from uniform, the mean of ten epochs."""
    found = [by_index(np.arange(min(count, 50_000)), count, keyed(seed, rounds)) for seed in range(10)]
    return float(np.mean([deviation(np.diff(each) % count - 1, count - 1) for each in found]))


@pytest.mark.parametrize("count", [1000, SHUFFLED + 1, 2**20 + 1])
def test_neighbours_have_nothing_in_common(count: int):
    assert abs(neighbours(count, ROUNDS)) < 2
    assert neighbours(count, 2) > 50  # two rounds are too few, and the test shows it


def test_a_batch_of_sorted_data_has_classes_by_chance():
    """The spread of a class's share in batches of 64, and the likeness of two epochs."""
    count = 2**20 + 1
    first, second = (by_index(np.arange(2**16), count, keyed(seed)) for seed in (1, 2))
    shares = (first.reshape(-1, 64) * 10 // count == 3).sum(axis=1)
    assert shares.var() == pytest.approx(64 * 0.1 * 0.9, rel=0.15)  # 1,024 batches: a deviation is 0.044
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02


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
