"""DALI as a reader: the host's pixels however runs are cut, damaged images found and named."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from mpibow.data import Image, RecordSet, Slot, dali, fixed
from mpibow.data.dali import Dali, available
from mpibow.data.damage import Damages
from mpibow.data.decoded import Decoded, decoding_reader
from mpibow.data.pipeline import Pipeline
from mpibow.data.slots import fill_counter
from mpibow.errors import DamagedRecord, DeviceError, RecordError
from tests.data.photos import bars, records
from tests.data.slots import image_slot
from tests.refusals import refuses

SIZE, SEED, COUNT = 24, 5, 20


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory) -> RecordSet:
    return records(tmp_path_factory.mktemp("jpeg") / "set", bars(COUNT))


def decoded(data: RecordSet) -> Decoded:
    return Decoded(data, Image(SIZE), (0.08, 1.0))


def reader_of(data: RecordSet, **options) -> Dali:
    return Dali(data, decoded(data).windows, SIZE, **{"threads": 1} | options)


def slot_of(samples: Sequence[int]) -> Slot:
    slot = image_slot(len(samples), (3, SIZE, SIZE))
    slot.samples = np.array(samples)
    fill_counter(slot.arrays["counter"], SEED, 0, slot.samples)
    return slot


def read(reader: Dali, samples: Sequence[int]) -> Slot:
    slot = slot_of(samples)
    reader.begin([slot])
    reader.end()
    return slot


def check_slot(data: RecordSet, slot: Slot) -> None:
    """Every row is what the host decodes."""
    images, labels = np.zeros_like(slot.arrays["image"]), np.zeros_like(slot.arrays["label"])
    decoded(data).read(slot.samples, images, labels, slot.arrays["counter"])
    np.testing.assert_array_equal(slot.arrays["image"], images)
    np.testing.assert_array_equal(slot.arrays["label"], labels)


def test_what_is_missing(monkeypatch, tmp_path):
    def only(*present: str) -> Callable:
        def find(name: str):
            if name.partition(".")[0] not in present:
                raise ModuleNotFoundError(name)
            return name in present or None

        return find

    monkeypatch.setattr(dali, "find_spec", only("numba"))
    assert available() == "NVIDIA DALI is not installed: pip install -e '.[dali]'"
    missing = "NVIDIA DALI is not installed: pip install -e '.[dali]'"
    with refuses(f"data.pipeline: dali cannot be used: {missing}", DeviceError):
        reader_of(records(tmp_path / "set", bars(1)))
    monkeypatch.setattr(dali, "find_spec", only("numba", "nvidia"))  # another package of NVIDIA's
    assert available() == "NVIDIA DALI is not installed: pip install -e '.[dali]'"
    monkeypatch.setattr(dali, "find_spec", only("nvidia", "nvidia.dali"))
    assert available() == "numba is not installed: pip install -e '.[dali]'"
    monkeypatch.setattr(dali, "find_spec", only("nvidia", "nvidia.dali", "numba"))
    assert available() == ""


@pytest.mark.dali
@pytest.mark.parametrize(("samples", "depth", "threads"), [(1, 1, 1), (8, 2, 2), (13, 3, 1), (64, 2, 3)])
def test_runs_threads_and_changes_do_not_matter(jpegs: RecordSet, samples, depth, threads):
    """Learners come and go, epochs end in the middle of a slot, and every sample is the host's."""
    timelines, data = [fixed(3, (2,), 4, 31)], decoded(jpegs)
    readers = (
        reader_of(jpegs, threads=threads, samples=samples, depth=depth),
        decoding_reader(data, Damages("", COUNT, 0), 1),
    )
    ours, host = (
        Pipeline(data, reader, lambda: timelines[-1], rank=0, iteration=4, seed=SEED, prefetch=6) for reader in readers
    )
    for t in range(4, 24):
        for slot, expected in zip(ours.next(), host.next(), strict=True):
            for name, array in expected.arrays.items():
                np.testing.assert_array_equal(slot.arrays[name], array)
            slot.release()
            expected.release()
        if t in (9, 10):
            timelines.append(timelines[-1].announce(3 * t - 11, (1 + 2 * (t == 10),)))
    ours.close()
    host.close()


@pytest.mark.dali
def test_a_slot_larger_than_a_run_should_be(jpegs: RecordSet):
    reader = reader_of(jpegs, samples=2, depth=3)
    slots = [slot_of(each) for each in ([1], [2, 3, 4, 5, 6], [7, 8], [*range(9)])]
    for slot in slots[:2]:  # the second while the first is under way
        reader.begin([slot])
    for slot in slots[2:]:
        reader.end()
        reader.begin([slot])
    reader.end()
    reader.end()
    reader.close()
    for slot in slots:
        check_slot(jpegs, slot)


def cut(number: int) -> bytes:
    """Its header is whole, its pixels are not."""
    image, _ = bars(COUNT)[number]
    return image[: image.index(b"\xff\xda") + 20]


HUGE = b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01"


@pytest.mark.dali
@pytest.mark.parametrize(
    ("image", "why"),
    [
        (cut(3), "DALI refuses it"),
        (b"\xff\xd8\xff\xd9", "a JPEG without a frame"),
        (b"no image", "neither a JPEG nor a PNG"),
        (HUGE, f"it has 65535 x 65535 pixels, and at most {1 << 26} are decoded"),
    ],
    ids=["cut", "empty", "text", "huge"],
)
def test_a_damaged_image_is_named(tmp_path, image, why):
    """By file and record, in its turn; the reader goes on."""
    images = bars(8)
    images[3] = image, 0
    data = records(tmp_path / "set", images)
    reader = reader_of(data, threads=2, samples=4, depth=3)
    slots = [slot_of(each) for each in ([0, 1], [2, 3], [4, 5])]
    for slot in slots:
        reader.begin([slot])
    reader.end()
    with pytest.raises(DamagedRecord) as caught:
        reader.end()
    assert str(caught.value) == (
        f"{tmp_path}/set/set-00000.mpr: record 3: cannot be decoded: {why}; "
        "convert the data again, or set data.on_corrupt=skip"
    )
    assert caught.value.sample == 3
    reader.end()
    check_slot(data, slots[0])
    check_slot(data, slots[2])
    check_slot(data, read(reader, [6, 7]))
    with pytest.raises(DamagedRecord):
        read(reader, [3])
    reader.close()


@pytest.mark.dali
def test_one_damaged_image_in_place_of_another_may_be_refused(tmp_path):
    data = records(tmp_path / "set", [(cut(0), 0), *bars(1)])

    def refuse(error: DamagedRecord) -> int:
        raise RecordError(f"enough: {error.sample}")

    reader = reader_of(data, damaged=refuse)
    with pytest.raises(RecordError, match=r"^enough: 0$"):
        read(reader, [1, 0])
    reader.close()


@pytest.mark.dali
def test_what_is_no_samples_fault(jpegs: RecordSet):
    reader = reader_of(jpegs)
    reader.begin([slot_of([1, 2])])

    class Failing:
        def share_outputs(self):
            raise RuntimeError("out of memory")

    reader._pipe = Failing()
    with pytest.raises(DeviceError, match=r"^data\.pipeline: dali failed: out of memory$"):
        reader.end()
    check_slot(jpegs, read(reader, [3]))
    reader.close()


@pytest.mark.dali
@pytest.mark.parametrize(
    ("device", "where", "error"), [(None, "CPUs", ImportError("no gast")), (3, "GPU 3", RuntimeError("no driver"))]
)
def test_where_it_cannot_begin(jpegs: RecordSet, monkeypatch, device, where, error: Exception):
    def fail(*_) -> None:
        raise error

    monkeypatch.setattr(Dali, "_built", fail)
    message = rf"^data\.pipeline: dali cannot start on {where}: {error}; set data\.pipeline=host$"
    with pytest.raises(DeviceError, match=message):
        reader_of(jpegs, device=device)


@pytest.mark.dali
@pytest.mark.parametrize("under_way", [0, 1, 3])
def test_close(jpegs: RecordSet, under_way):
    """Nothing is written afterwards, whatever was under way."""
    reader = reader_of(jpegs, threads=2, depth=3)
    slots = [slot_of(range(COUNT)) for _ in range(under_way)]
    for slot in slots:
        reader.begin([slot])
    reader.close()
    assert not any(slot.arrays["image"].any() for slot in slots)
