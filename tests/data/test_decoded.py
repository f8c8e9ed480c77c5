"""Encoded records in slots: the right windows of the right samples, however they get there."""

import threading
from functools import cache
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from mpibow.data import Array, Image as Size, RecordSet, Slot, fixed
from mpibow.data.damage import Damages, decoding
from mpibow.data.decoded import Decoded, centre_windows, decoding_reader, random_windows
from mpibow.data.order import samples_at
from mpibow.data.pipeline import Pipeline
from mpibow.data.readers import DrawingReader
from mpibow.data.slots import fill_counter
from mpibow.errors import DamagedRecord
from tests.data.photos import bars, encode, picture, records, scaled
from tests.data.slots import piped

COUNT, SIZE, SEED, AREA, ASPECT = 41, 8, 5, (0.2, 0.9), (0.75, 4 / 3)


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> RecordSet:
    """JPEGs of several sizes."""
    return records(tmp_path_factory.mktemp("records") / "train", bars(COUNT))


@cache
def expected(data: RecordSet, sample: int, epoch: int | None) -> Array:
    """To train on in `epoch`, or to evaluate: decoded by Pillow, scaled by the reference."""
    image = Image.open(BytesIO(data.record(sample)[0]))
    sizes = np.array([[image.height, image.width]])
    if epoch is None:
        window = centre_windows(sizes, 9, SIZE)[0]
    else:
        counter = np.zeros((1, 4), np.uint32)
        fill_counter(counter, SEED, epoch, np.array([sample]))
        window = random_windows(sizes, counter, AREA, ASPECT)[0]
    return scaled(image, window, SIZE)


def damages(limit: int = 0) -> Damages:
    return Damages("train", COUNT, limit)


def test_what_it_says_of_itself(stored: RecordSet):
    data = Decoded(stored, Size(SIZE))
    assert (data.name, data.count, data.shape, data.dtype, data.classes) == ("train", COUNT, (3, 8, 8), np.uint8, 3)
    assert (data.mean, data.std) == (stored.mean, stored.std)


def test_it_reads_the_centres(stored: RecordSet):
    samples = np.array([7, 0, 40, 7])
    images, labels = np.zeros((4, 3, SIZE, SIZE), np.uint8), np.zeros(4, np.int32)
    Decoded(stored, Size(SIZE), AREA, ASPECT).read(samples, images, labels)
    assert labels.tolist() == [1, 0, 1, 1]
    for image, sample in zip(images, samples.tolist(), strict=True):
        np.testing.assert_array_equal(image, expected(stored, sample, None))


def test_without_an_area_the_centre_is_trained_on(stored: RecordSet):
    data, sizes = Decoded(stored, Size(SIZE, 20)), np.array([[30, 40], [55, 21]])
    np.testing.assert_array_equal(data.windows(sizes, np.zeros((2, 4), np.uint32)), centre_windows(sizes, 20, SIZE))


def check(data: RecordSet, slot: Slot) -> None:
    assert (slot.arrays["label"] == slot.samples % 3).all()
    for image, sample, epoch in zip(slot.arrays["image"], slot.samples.tolist(), slot.epochs.tolist(), strict=True):
        np.testing.assert_array_equal(image, expected(data, sample, epoch))


@settings(max_examples=12)
@given(
    batch=st.integers(1, 11),
    threads=st.integers(1, 3),
    prefetch=st.integers(1, 30),
    start=st.integers(0, 3 * COUNT),
    changes=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3), st.integers(1, 3)), max_size=4),
)
def test_exactly_once_whenever_learners_change(stored: RecordSet, batch, threads, prefetch, start, changes):
    """Two ranks' slots side by side are the stream; begun anywhere, changed anywhere, each image right."""
    timelines = [fixed(batch, (1, 2), 7, start)]
    data = Decoded(stored, Size(SIZE), AREA, ASPECT)
    ranks = [
        Pipeline(data, decoding_reader(data, damages(), threads), lambda: timelines[-1], rank=rank, iteration=7,
                 seed=SEED, prefetch=prefetch)
        for rank in (0, 1)
    ]  # fmt: skip
    position = start
    try:
        for t in range(7, 20):
            slots = [slot for rank in ranks for slot in rank.next()]
            samples = np.concatenate([slot.samples for slot in slots])
            np.testing.assert_array_equal(samples, samples_at(position, len(samples), COUNT, SEED)[1])
            position += len(samples)
            for slot in slots:
                check(stored, slot)
                slot.release()
            for after, *counts in changes:
                begin = t + prefetch + 1
                if after == t - 7 and begin > timelines[-1].changes[-1].iteration:
                    timelines.append(timelines[-1].announce(begin, (counts[0], counts[1])))
    finally:
        for rank in ranks:
            rank.close()


def test_runs_are_read_ahead_for_one_learner(stored: RecordSet):
    """Two whole runs are under way while a learner has what came before."""
    data = Decoded(stored, Size(SIZE), AREA)
    assert (DrawingReader.samples, DrawingReader.depth, DrawingReader.piece) == (64, 2, 4)
    before = set(threading.enumerate())
    made = piped(data, decoding_reader(data, damages(), 2), fixed(16, (1,)), 12)
    for _ in range(30):
        slot = made.next()[0]
        check(stored, Slot(slot.arrays, lambda: None, slot.samples, slot.epochs))
        slot.release()
    assert set(threading.enumerate()) > before
    made.close()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("bad", [b"no image", encode(picture(30, 30))[:300]])
def test_an_image_that_cannot_be_decoded(tmp_path, bad):
    images = bars(COUNT)
    images[17] = (bad, 0)
    stored = records(tmp_path / "train", images)
    data = Decoded(stored, Size(SIZE), AREA)
    why = "neither a JPEG nor a PNG" if bad == b"no image" else "truncated file read"
    if bad != b"no image":
        try:
            Image.open(BytesIO(bad)).load()
        except OSError as error:
            why = str(error).lower()
    message = (
        f"{tmp_path}/train/train-00000.mpr: record 17: cannot be decoded: {why}; "
        "convert the data again, or set data.on_corrupt=skip"
    )
    arrays = np.zeros((3, 3, SIZE, SIZE), np.uint8), np.zeros(3, np.int32)
    with pytest.raises(DamagedRecord) as caught:
        data.read(np.array([16, 17, 18]), *arrays)
    assert (str(caught.value), caught.value.sample) == (message, 17)
    made = piped(data, decoding_reader(data, damages(), 2), fixed(4, (1,)), 30)
    with pytest.raises(DamagedRecord) as caught:
        [made.next()[0].release() for _ in range(12)]
    made.close()
    assert str(caught.value) == message


def test_memory_that_runs_out_is_no_damage(stored: RecordSet):
    with pytest.raises(MemoryError), decoding(stored, 0):
        raise MemoryError
