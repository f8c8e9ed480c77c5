"""Damaged samples that others replace: by the data alone, counted once, and no more than allowed."""

import threading

import numpy as np
import pytest

from mpibow.data import Array, ArrayData, Image, fixed, open_records
from mpibow.data.damage import Damages, Intact
from mpibow.data.decoded import Decoded, decoding_reader
from mpibow.data.readers import Resident
from mpibow.errors import DamagedRecord, RecordError
from tests.data.photos import bars, records
from tests.data.sets import read as arrays_of
from tests.data.slots import piped
from tests.refusals import refuses

COUNT = 10


class Broken(ArrayData):
    """Sample n is an image of n, its label n; some cannot be read."""

    def __init__(self, *damaged: int) -> None:
        numbers = np.arange(COUNT)
        super().__init__(numbers.reshape(-1, 1, 1, 1).astype(np.uint8), numbers, name="numbers")
        self._damaged = damaged

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        for sample in samples.tolist():
            if sample in self._damaged:
                raise DamagedRecord(f"record {sample} is damaged", sample)
        super().read(samples, images, labels)


def read(data: Intact | Resident, *samples: int) -> list[int]:
    images, labels = arrays_of(data, samples)
    assert images.ravel().tolist() == labels.tolist()
    return labels.tolist()


def test_the_next_intact_one_takes_its_place():
    damages = Damages("numbers", COUNT, 4)
    data = Intact(Broken(3, 4, 9, 8), damages)
    assert read(data, 0, 3, 4, 5, 9, 8, 3) == [0, 5, 5, 5, 0, 0, 5]
    assert read(data, 1, 2) == [1, 2]
    assert damages.found() == {f"numbers {n}": f"record {n} is damaged" for n in (3, 4, 8, 9)}
    assert list(damages.found()) == ["numbers 3", "numbers 4", "numbers 9", "numbers 8"]  # as they were met


def test_a_data_set_in_memory_is_mended_once():
    damages = Damages("numbers", COUNT, 4)
    data = Resident(Intact(Broken(0, 9), damages), 2)
    assert read(data, *range(COUNT)) == [1, 1, 2, 3, 4, 5, 6, 7, 8, 1]
    assert sorted(damages.found()) == ["numbers 0", "numbers 9"]


def test_none_is_allowed():
    damages = Damages("numbers", COUNT, 0)
    with pytest.raises(DamagedRecord, match=r"^record 3 is damaged$"):
        read(Intact(Broken(3), damages), 2, 3)
    assert damages.found() == {}


def test_one_too_many():
    data = Intact(Broken(1, 3, 5), Damages("numbers", COUNT, 2))
    assert read(data, 5, 3, 5, 3) == [6, 4, 6, 4]  # the same ones again count once
    for _ in range(2):
        with pytest.raises(RecordError) as caught:
            read(data, 1)
        assert not isinstance(caught.value, DamagedRecord)
        assert str(caught.value) == (
            "data.corrupt_limit: 3 of 10 samples of numbers are damaged, at most 2 are skipped: 1, 3, 5; "
            "the last found: record 1 is damaged"
        )


def test_not_one_is_left():
    with refuses(
        "data.corrupt_limit: 10 of 10 samples of numbers are damaged, at most 9 are skipped: 0, 1, 2, 3, 4, ...; "
        "the last found: record 3 is damaged",
        RecordError,
    ):
        read(Intact(Broken(*range(COUNT)), Damages("numbers", COUNT, 100)), 4)


def test_threads_count_together():
    damages = Damages("numbers", COUNT, 5)
    data = Intact(Broken(1, 3, 5), damages)
    threads = [threading.Thread(target=lambda: [read(data, 1, 3, 5) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(damages.found()) == 3


def test_encoded_records(tmp_path):
    """The window is drawn by the place's own numbers, in the image that takes it: all others are untouched."""
    whole = bars(COUNT)
    broken = [(b"no image", 0) if n in (4, 9) else image for n, image in enumerate(whole)]
    slots = []
    for name, images in (("whole", whole), ("broken", broken)):
        data, damages = Decoded(records(tmp_path / name, images), Image(8), (0.5, 1.0)), Damages(name, COUNT, 2)
        made = piped(data, decoding_reader(data, damages, 2), fixed(COUNT, (1,)), 1, seed=1)
        slots.append(made.next()[0])
        made.close()
    at = slots[0].samples.tolist()
    np.testing.assert_array_equal(slots[1].samples, at)
    for row, sample in enumerate(at):
        if sample not in (4, 9):
            np.testing.assert_array_equal(slots[1].arrays["image"][row], slots[0].arrays["image"][row])
    found = {sample: slots[1].arrays["label"][row] for row, sample in enumerate(at)}
    assert (found[4], found[9]) == (whole[5][1], whole[0][1])
    replaced = np.zeros((1, 3, 8, 8), np.uint8), np.zeros(1, np.int32)
    row = at.index(9)
    Decoded(open_records(tmp_path / "whole"), Image(8), (0.5, 1.0)).read(
        np.array([0]), *replaced, slots[1].arrays["counter"][row : row + 1]
    )
    np.testing.assert_array_equal(slots[1].arrays["image"][row], replaced[0][0])
    assert sorted(damages.found()) == ["broken 4", "broken 9"]
