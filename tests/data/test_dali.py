"""DALI as a reader: Pillow's pixels however runs are cut, raw images to the bit, damaged ones found and replaced."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpibow.data import dali
from mpibow.data.dali import Dali, available
from mpibow.data.dataset import Array
from mpibow.data.order import samples_at
from mpibow.data.pipeline import Direct, Pipeline
from mpibow.data.recordset import RecordSet, open_records, write_records
from mpibow.data.slots import Slot, fill_counter, slot_arrays
from mpibow.data.timeline import Timeline, fixed
from mpibow.data.window import centre_windows, random_windows
from mpibow.errors import DamagedRecord, DeviceError, RecordError
from mpibow.kernels.numpy.resize import resize

pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install -e '.[dev]'")

SIZE, SEED, COUNT = 24, 5, 20
SAMPLE = Path(__file__).parents[3] / "shared/data/imagenet-sample/imagenet-1000class-400smallest.tar"
windows = partial(random_windows, area=(0.08, 1.0), aspect=(3 / 4, 4 / 3))
centres = partial(centre_windows, resize=28, size=SIZE)


def photo(number: int) -> Any:
    """An image with structure at every scale, each of another size; every fifth is grey."""
    rng = np.random.default_rng(number)
    height, width = rng.integers(10, 90, 2)
    low = rng.integers(0, 256, (4, 5, 3)).astype(np.uint8)
    smooth = np.asarray(pillow.fromarray(low).resize((int(width), int(height)), pillow.Resampling.BICUBIC))
    image = pillow.fromarray((smooth // 2 + rng.integers(0, 128, smooth.shape)).astype(np.uint8))
    return image.convert("L") if number % 5 == 4 else image


def encoded(number: int, form: str = "JPEG") -> bytes:
    file = io.BytesIO()
    photo(number).save(file, form, **({"quality": 60 + number} if form == "JPEG" else {}))
    return file.getvalue()


def written(folder: Path, images: Sequence[bytes | Array], encoding: str = "jpeg", shard_size: int = 8000) -> RecordSet:
    samples = [(image, number % 7) for number, image in enumerate(images)]
    moments = None if encoding == "raw" else ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    write_records(
        folder / "set", samples, classes=7, encoding=encoding, moments=moments, name="set", shard_size=shard_size
    )
    return open_records(folder / "set")


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> RecordSet:
    return written(tmp_path_factory.mktemp("jpeg"), [encoded(n) for n in range(COUNT)])


def counter_of(epochs: Array | int, samples: Array) -> Array:
    counter = np.zeros((len(samples), 4), np.uint32)
    fill_counter(counter, SEED, epochs, samples)
    return counter


def expected(data: RecordSet, sample: int, counter: Array, choose: Any = windows, size: int = SIZE) -> Array:
    """What Pillow decodes of a sample, scaled by the reference."""
    image = np.asarray(pillow.open(io.BytesIO(data.record(sample)[0])).convert("RGB"))
    (window,) = choose(np.array([image.shape[:2]]), counter[None])
    out, sides = np.zeros((3, size, size), np.uint8), np.array(image.shape[:2])
    resize(image, np.array([0, 0, *sides]), sides, window, out)
    return out


def check(data: RecordSet, slots: Sequence[Slot], timeline: Timeline, t: int) -> None:
    batch = timeline.batch
    epochs, samples = samples_at(timeline.position(t), timeline.learners(t) * batch, data.count, SEED)
    assert len(slots) == timeline.learners(t)
    for j, slot in enumerate(slots):
        part = slice(j * batch, (j + 1) * batch)
        counter = counter_of(epochs[part], samples[part])
        np.testing.assert_array_equal(slot.arrays["counter"], counter)
        np.testing.assert_array_equal(slot.arrays["label"], samples[part] % 7)
        for row, sample in enumerate(samples[part].tolist()):
            np.testing.assert_array_equal(slot.arrays["image"][row], expected(data, sample, counter[row]))


class Shaped:
    """A data set of encoded images as the pipeline wants one: of samples that have a shape."""

    def __init__(self, data: RecordSet, size: int = SIZE) -> None:
        self.name, self.count, self.classes, self.mean, self.std = data.name, data.count, data.classes, (), ()
        self.shape, self.dtype = (3, size, size), np.dtype(np.uint8)

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        raise AssertionError("the reader does it")


@contextmanager
def pipeline(
    data: Any, reader: Any, timeline: Callable[[], Timeline], *, iteration: int = 0, prefetch: int = 6
) -> Iterator[Pipeline]:
    made = Pipeline(data, reader, timeline, rank=0, iteration=iteration, seed=SEED, prefetch=prefetch)
    try:
        yield made
    finally:
        made.close()


def slot_of(samples: Sequence[int], size: int = SIZE) -> Slot:
    slot = Slot(slot_arrays(len(samples), (3, size, size), np.dtype(np.uint8)), lambda: None)
    slot.samples = np.array(samples)
    slot.arrays["counter"][...] = counter_of(0, slot.samples)
    return slot


def read(reader: Dali, *samples: Sequence[int]) -> list[Slot]:
    """One run of several slots."""
    slots = [slot_of(each) for each in samples]
    reader.begin(slots)
    reader.end()
    return slots


def check_slot(data: RecordSet, slot: Slot, read_instead: Sequence[int] | None = None) -> None:
    """Every row is the sample's, or that of the one read instead, whose place keeps its counter."""
    for row, sample in enumerate(slot.samples if read_instead is None else read_instead):
        assert slot.arrays["label"][row] == sample % 7
        image = expected(data, int(sample), slot.arrays["counter"][row])
        np.testing.assert_array_equal(slot.arrays["image"][row], image)


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def only(*present: str) -> Callable[[str], Any]:
        def find(name: str) -> Any:
            if name.partition(".")[0] not in present:
                raise ModuleNotFoundError(name)
            return name in present or None

        return find

    monkeypatch.setattr(dali, "find_spec", only("numba"))
    assert available() == "NVIDIA DALI is not installed: pip install -e '.[dali]'"
    with pytest.raises(DeviceError) as caught:
        Dali(written(tmp_path, [encoded(0)]), windows, SIZE, threads=1)
    assert str(caught.value) == (
        "data.pipeline: dali cannot be used: NVIDIA DALI is not installed: pip install -e '.[dali]'"
    )
    monkeypatch.setattr(dali, "find_spec", only("numba", "nvidia"))  # another package of NVIDIA's
    assert available() == "NVIDIA DALI is not installed: pip install -e '.[dali]'"
    monkeypatch.setattr(dali, "find_spec", only("nvidia", "nvidia.dali"))
    assert available() == "numba is not installed: pip install -e '.[dali]'"
    monkeypatch.setattr(dali, "find_spec", only("nvidia", "nvidia.dali", "numba"))
    assert available() == ""


@pytest.mark.dali
@pytest.mark.parametrize(("samples", "depth", "threads"), [(1, 1, 1), (8, 2, 2), (13, 3, 1), (64, 2, 3)])
def test_runs_threads_and_changes_do_not_matter(jpegs: RecordSet, samples: int, depth: int, threads: int) -> None:
    """Learners come and go, epochs end in the middle of a slot, and every sample is Pillow's."""
    timelines = [fixed(3, (2,))]
    reader = Dali(jpegs, windows, SIZE, threads=threads, samples=samples, depth=depth)
    with pipeline(Shaped(jpegs), reader, lambda: timelines[-1]) as made:
        for t in range(20):
            slots = made.next()
            check(jpegs, slots, timelines[-1], t)
            for slot in slots:
                slot.release()
            if t == 5:
                timelines.append(timelines[-1].announce(t + 7, (1,)))
            if t == 6:
                timelines.append(timelines[-1].announce(t + 9, (3,)))


@pytest.mark.dali
def test_a_run_that_is_resumed(jpegs: RecordSet) -> None:
    """From the middle of an epoch on, under another number of learners."""
    timeline = fixed(3, (3,), iteration=4, position=31)
    with pipeline(
        Shaped(jpegs), Dali(jpegs, windows, SIZE, threads=2, samples=7), lambda: timeline, iteration=4
    ) as made:
        for t in range(4, 9):
            check(jpegs, made.next(), timeline, t)


@pytest.mark.dali
def test_a_slot_larger_than_a_run_should_be(jpegs: RecordSet) -> None:
    reader = Dali(jpegs, windows, SIZE, threads=1, samples=2, depth=3)
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


@pytest.mark.dali
def test_windows_of_parts_of_pixels(jpegs: RecordSet) -> None:
    reader = Dali(jpegs, lambda sides, counter: centres(sides), SIZE, threads=1)
    (slot,) = read(reader, [*range(COUNT)])
    reader.close()
    for row in range(COUNT):
        centre = expected(jpegs, row, slot.arrays["counter"][row], lambda sides, counter: centres(sides))
        np.testing.assert_array_equal(slot.arrays["image"][row], centre)


@pytest.mark.dali
def test_png(tmp_path: Path) -> None:
    data = written(tmp_path, [encoded(n, "PNG") for n in range(6)], "png")
    reader = Dali(data, windows, SIZE, threads=1)
    (slot,) = read(reader, [5, 0, 4, 2])
    reader.close()
    check_slot(data, slot)


@pytest.mark.dali
@pytest.mark.skipif(not SAMPLE.exists(), reason=f"{SAMPLE} is not there")
def test_photographs(tmp_path: Path) -> None:
    """Every tenth of 400 of ImageNet, as they are; Pillow's own resize differs by one of 255 levels at most."""
    with tarfile.open(SAMPLE) as tar:
        members = [member for member in tar if member.name.endswith(".JPEG")]
        images = [tar.extractfile(member).read() for member in members[::10]]  # type: ignore[union-attr]
    data = written(tmp_path, images, shard_size=1 << 20)
    reader = Dali(data, windows, 224, threads=2, samples=16)
    slot = slot_of(range(40), 224)
    reader.begin([slot])
    reader.end()
    reader.close()
    for row in range(40):
        counter = slot.arrays["counter"][row]
        np.testing.assert_array_equal(slot.arrays["image"][row], expected(data, row, counter, size=224))
        image = pillow.open(io.BytesIO(images[row])).convert("RGB")
        ((top, left, height, width),) = windows(np.array([[image.height, image.width]]), counter[None])
        box = (left, top, left + width, top + height)
        theirs = np.asarray(image.resize((224, 224), pillow.Resampling.BILINEAR, box=box)).transpose(2, 0, 1)
        assert abs(slot.arrays["image"][row].astype(int) - theirs).max() <= 1


@pytest.mark.dali
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_raw_images_pass_as_they_are(tmp_path: Path, dtype: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 3, 4, 5)).astype(dtype)
    data = written(tmp_path, list(images), "raw", 500)
    timeline = fixed(3, (2,))
    with (
        pipeline(data, Dali(data, windows, SIZE, threads=1, samples=7), lambda: timeline) as made,
        pipeline(data, Direct(data), lambda: timeline) as direct,
    ):
        for _ in range(9):
            for ours, plain in zip(made.next(), direct.next(), strict=True):
                for name, array in plain.arrays.items():
                    np.testing.assert_array_equal(ours.arrays[name], array)


def break_record(data: RecordSet, record: int) -> RecordSet:
    """A byte of the record's image is no longer what was written."""
    shard, number = data.find(record)
    start = shard.starts[number]
    content = bytearray(shard.path.read_bytes())
    content[start + 3] ^= 1
    shard.path.write_bytes(content)
    return open_records(data.folder)


def cut(number: int) -> bytes:
    """Its header is whole, its pixels are not."""
    image = encoded(number)
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
def test_a_damaged_image_is_named(tmp_path: Path, image: bytes, why: str) -> None:
    """By file and record, in its turn; the reader goes on."""
    data = written(tmp_path, [image if n == 3 else encoded(n) for n in range(8)], shard_size=1 << 20)
    reader = Dali(data, windows, SIZE, threads=2, samples=4, depth=3)
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
    (slot,) = read(reader, [6, 7])
    check_slot(data, slot)
    with pytest.raises(DamagedRecord):
        read(reader, [3])
    reader.close()


@pytest.mark.dali
def test_a_changed_byte_is_named(tmp_path: Path) -> None:
    data = break_record(written(tmp_path, [encoded(n) for n in range(4)], shard_size=1 << 20), 2)
    with (
        pipeline(Shaped(data), Dali(data, windows, SIZE, threads=1), lambda: fixed(4, (1,))) as made,
        pytest.raises(RecordError, match=r"^.*/set-00000\.mpr: record 2: checksum is 0x\w+, the index has 0x\w+; "),
    ):
        made.next()


@pytest.mark.dali
def test_damaged_images_are_replaced(tmp_path: Path) -> None:
    """3, 4 and 9 by DALI's word, 10 by its header, 7 by its checksum: by the next one that is whole."""
    broken = {3: cut(3), 4: cut(4), 9: cut(9), 10: b"no image"}
    data = written(tmp_path, [broken.get(n) or encoded(n) for n in range(12)], shard_size=1 << 20)
    data, seen = break_record(data, 7), []

    def after(error: DamagedRecord) -> int:
        seen.append(error.sample)
        return (error.sample + 1) % 12

    reader = Dali(data, windows, SIZE, threads=1, samples=6, depth=4, damaged=after)
    orders = [1, 2, 3], [0, 4, 5], [7, 6, 8], [9, 11, 3]
    slots = [slot_of(each) for each in orders]
    for pair in (slots[:2], slots[2:3], slots[3:]):
        reader.begin(list(pair))
    for _ in range(3):
        reader.end()
    reader.close()
    instead = [1, 2, 5], [0, 5, 5], [8, 6, 8], [11, 11, 5]
    for slot, order, samples in zip(slots, orders, instead, strict=True):
        assert slot.samples.tolist() == order
        check_slot(data, slot, samples)
    assert seen == [7, 3, 4, 4, 9, 10, 3, 4]


@pytest.mark.dali
def test_one_damaged_image_in_place_of_another_may_be_refused(tmp_path: Path) -> None:
    data = written(tmp_path, [cut(0), encoded(1)])

    def refuse(error: DamagedRecord) -> int:
        raise RecordError(f"enough: {error.sample}")

    reader = Dali(data, windows, SIZE, threads=1, damaged=refuse)
    with pytest.raises(RecordError, match=r"^enough: 0$"):
        read(reader, [1, 0])
    reader.close()


@pytest.mark.dali
def test_what_is_no_samples_fault(jpegs: RecordSet) -> None:
    reader = Dali(jpegs, windows, SIZE, threads=1)
    reader.begin([slot_of([1, 2])])

    class Failing:
        def share_outputs(self) -> Any:
            raise RuntimeError("out of memory")

    reader._pipe = Failing()
    with pytest.raises(DeviceError, match=r"^data\.pipeline: dali failed: out of memory$"):
        reader.end()
    (slot,) = read(reader, [3])
    reader.close()
    check_slot(jpegs, slot)


@pytest.mark.dali
@pytest.mark.parametrize(
    ("device", "where", "error"), [(None, "CPUs", ImportError("no gast")), (3, "GPU 3", RuntimeError("no driver"))]
)
def test_where_it_cannot_begin(
    jpegs: RecordSet, monkeypatch: pytest.MonkeyPatch, device: int | None, where: str, error: Exception
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Dali, "_built", fail)
    message = rf"^data\.pipeline: dali cannot start on {where}: {error}; set data\.pipeline=host$"
    with pytest.raises(DeviceError, match=message):
        Dali(jpegs, windows, SIZE, threads=1, device=device)


@pytest.mark.dali
@pytest.mark.parametrize("under_way", [0, 1, 3])
def test_close(jpegs: RecordSet, under_way: int) -> None:
    """Nothing is written afterwards, whatever was under way."""
    reader = Dali(jpegs, windows, SIZE, threads=2, depth=3)
    slots = [slot_of(range(COUNT)) for _ in range(under_way)]
    for slot in slots:
        reader.begin([slot])
    reader.close()
    assert not any(slot.arrays["image"].any() for slot in slots)
