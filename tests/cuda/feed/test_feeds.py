"""What learners on a GPU find in their slots: the bytes that those of the host do, by copies or by a gather there."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from mpibow.cuda.feed.deviceset import DeviceSet, gathers
from mpibow.cuda.feed.feeder import Feeder
from mpibow.cuda.feed.togpu import ToGpu, open_source
from mpibow.cuda.kernels.kernels import Launch
from mpibow.data import Array, ArrayData, NamedArrays, Samples, fixed, open_records, write_records
from mpibow.data.loading import Loading
from mpibow.data.pipeline import Pipeline
from mpibow.data.pipeline_choice import PipelineChoice
from mpibow.data.readers import DirectReader, Reader
from mpibow.errors import DamagedRecord, DeviceError, RecordError
from tests.cuda.device.simulated import SimDriver, SimStream
from tests.cuda.feed.test_feeder import feeder_on
from tests.cuda.kernels.host import needs_compiler, run_all
from tests.refusals import refuses

SEED, BATCH, COUNT = 5, 3, 40
Batches = dict[tuple[int, int], dict[str, list]]  # by iteration and learner
HOST, GPU = PipelineChoice("host", ""), PipelineChoice("resident", "", on_device=True)


def bind(launches: Sequence[Launch]):
    """Kernels run on the host, when their turn in the stream comes."""

    def fill(stream: SimStream) -> None:
        stream.enqueue(lambda: run_all(launches))

    return fill


def images(dtype: str = "uint8", shape: tuple[int, ...] = (3, 2, 4)) -> ArrayData:
    pixels = np.random.default_rng(1).integers(0, 256, (COUNT, *shape)).astype(dtype)
    return ArrayData(pixels, np.arange(COUNT) * 3 % 11)


def pipeline(data: Samples, reader: Reader, feed, prefetch: int = 2, timelines=()) -> Pipeline:
    """That of two learners, unless the last of `timelines` says otherwise."""
    timelines = timelines or [fixed(BATCH, (2,))]
    first = timelines[0].changes[0].iteration
    return Pipeline(
        data, reader, lambda: timelines[-1], rank=0, iteration=first, seed=SEED, prefetch=prefetch, feed=feed
    )


def on_gpu(
    choice: PipelineChoice, data: Samples, seed: int, *, iterations: int = 9, prefetch: int = 2, most_damaged: int = 0,
    threads: int = 2, device: int = 0,
) -> Batches:  # fmt: skip
    """What learners' streams find, which copy a slot as late as they can; there is one more learner half-way."""
    driver = SimDriver(seed, device)
    driver.use(device)
    feeder = feeder_on(driver)
    reader, feed = open_source(Loading(data, {}, choice, BATCH, prefetch, threads, most_damaged), feeder, bind)
    at_first = len(driver.machine.waits)
    timelines = [fixed(BATCH, (2,), 7, 31)]
    made = pipeline(data, reader, feed, prefetch, timelines)
    streams = [driver.stream() for _ in range(3)]
    found = {}

    def keep(arrays: dict[str, Array], t: int, j: int) -> None:
        found[t, j] = {name: array.tolist() for name, array in arrays.items()}

    try:
        for t in range(iterations):
            slots = made.next()
            assert [slot.beside for slot in slots] == [len(slots)] * len(slots)
            for j, slot in enumerate(slots):
                slot.await_on(streams[j])
                streams[j].enqueue(lambda slot=slot, t=t, j=j: keep(slot.device.arrays, t, j))
                slot.release_after(streams[j])
            if t == iterations // 2:
                timelines.append(timelines[-1].announce(t + 7 + prefetch + 1, (3,)))
        assert threading.current_thread().name not in driver.machine.waits[at_first:]
        driver.machine.finish()
    finally:
        made.close()
    assert feeder.memory.held == 0
    return found


def on_host(data: Samples, *, iterations: int = 9, prefetch: int = 2, most_damaged: int = 0) -> Batches:
    reader, feed = Loading(data, {}, HOST, BATCH, prefetch, most_damaged=most_damaged).open()
    timelines = [fixed(BATCH, (2,), 7, 31)]
    made = pipeline(data, reader, feed, prefetch, timelines)
    found = {}
    for t in range(iterations):
        for j, slot in enumerate(made.next()):
            found[t, j] = {name: array.tolist() for name, array in slot.arrays.items()}
            slot.release()
        if t == iterations // 2:
            timelines.append(timelines[-1].announce(t + 7 + prefetch + 1, (3,)))
    made.close()
    return found


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_copied_slots_are_those_of_the_host(seed, prefetch):
    for data in (images(), images("float32")):
        assert on_gpu(HOST, data, seed, prefetch=prefetch) == on_host(data, prefetch=prefetch)


@pytest.mark.parametrize("prefetch", [1, 2])
def test_each_learner_has_a_slot_more_than_are_prefetched(prefetch):
    data, driver = images(), SimDriver()
    made, stream = pipeline(data, DirectReader(data), ToGpu(data, feeder_on(driver)), prefetch), driver.stream()
    used = []
    for _ in range(12):
        for slot in made.next():
            slot.await_on(stream)
            slot.release_after(stream)
            used.append(id(slot.device))
    made.close()
    ring = 2 * (prefetch + 1)
    assert len(set(used)) == ring
    assert used[: 12 * 2 - ring] == used[ring:]  # in turns


def test_arrays_by_name():
    data = NamedArrays({"user": np.arange(COUNT), "rating": np.arange(COUNT) / 4})
    assert on_gpu(HOST, data, 0) == on_host(data)


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("dtype", "shape"), [("uint8", (3, 4, 4)), ("uint8", (1, 5, 3)), ("float32", (3, 2, 3))])
def test_gathered_slots_are_those_of_the_host(dtype, shape, seed):
    """Images of whole packs of 16 bytes, of single bytes, and of 18 floats."""
    data = images(dtype, shape)
    assert on_gpu(GPU, data, seed) == on_host(data)


@needs_compiler
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("names", "launches"),
    [("u", 1), ("i r", 1), ("u i r", 2), ("p", 1), ("p u", 1), ("p q i", 2), ("p q u i r", 3), ("p d", 2)],
)
def test_arrays_by_name_are_gathered_as_well(names, launches, seed):
    """Numbers of 4 bytes, pixels, wide rows and bytes; in each launch a row and one of 4 bytes."""
    generator = np.random.default_rng(0)
    every = {
        "u": np.arange(COUNT), "i": -np.arange(COUNT) % 7, "r": np.arange(COUNT) / 4,
        "p": generator.integers(0, 256, (COUNT, 3, 4, 4), dtype=np.uint8), "q": generator.normal(size=(COUNT, 5)),
        "d": np.arange(COUNT).astype(np.uint8),
    }  # fmt: skip
    data = NamedArrays({name: every[name] for name in names.split()})
    assert on_gpu(GPU, data, seed) == on_host(data)
    tables = {name: array.reshape(COUNT, -1).view(np.uint8) for name, array in data.arrays.items()}
    slot = {name: np.zeros((2, *array.shape[1:]), array.dtype) for name, array in data.arrays.items()}
    assert len(gathers(tables, {**slot, "counter": np.zeros((2, 4), np.uint32)})) == launches


@needs_compiler
def test_another_device_than_the_first():
    """The pipeline's thread must use it as well."""
    assert on_gpu(GPU, images(), 0, device=2) == on_host(images())
    assert on_gpu(HOST, images(), 0, device=2) == on_host(images())


@needs_compiler
def test_only_counters_go_over():
    driver = SimDriver()
    data = images(shape=(3, 100, 100))
    reader, feed = open_source(Loading(data, {}, GPU, BATCH, 1, 2), feeder_on(driver), bind)
    assert type(reader) is Reader
    loaded = driver.copied
    assert loaded == COUNT * (30_000 + 4)
    made = pipeline(data, reader, feed, 1)
    slots = made.next()
    made.close()
    assert (driver.copied - loaded) % 256 == 0
    assert driver.copied - loaded <= 2 * 2 * 256
    assert {name: array.shape for name, array in slots[0].arrays.items()} == {"counter": (BATCH, 4)}


@needs_compiler
@pytest.mark.parametrize("stage", [1, 100, 7 * 24, 1 << 20])
def test_a_set_is_read_through_page_locked_memory(stage):
    """In pieces of 1, 4, 7 and all samples, none overwritten before it was copied."""
    data = images()
    for seed in range(5):
        driver = SimDriver(seed)
        made = DeviceSet(data, 3, feeder_on(driver), bind, stage)
        np.testing.assert_array_equal(made.tables["image"].reshape(data.images.shape), data.images)
        np.testing.assert_array_equal(made.tables["label"].view(np.int32).ravel(), data.labels)


def test_a_set_that_does_not_fit():
    driver = SimDriver(free=900)
    with refuses(
        "GPU 0 (NVIDIA H100, GPU-0000): 960 B for the images of arrays do not fit: 900 B of 1.0 GiB are free, "
        "1024.0 MiB are used by other programs or by CUDA itself: set data.pipeline=host",
        DeviceError,
    ):
        open_source(Loading(images(), {}, GPU, BATCH, 1), feeder_on(driver), bind)


@needs_compiler
def test_damaged_samples_are_replaced_on_the_device(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 3, 4, 4), dtype=np.uint8)
    write_records(tmp_path / "a", zip(pixels, np.arange(COUNT) % 7, strict=True), classes=7)
    file = tmp_path / "a/a-00000.mpr"
    content = bytearray(file.read_bytes())
    content[64 + 48 * 11] ^= 1
    file.write_bytes(content)
    data = open_records(tmp_path / "a")
    assert on_gpu(GPU, data, 1, most_damaged=1) == on_host(data, most_damaged=1)
    with pytest.raises(DamagedRecord, match=r"record 11: checksum is"):
        on_gpu(GPU, data, 1)


def test_an_error_of_the_reader_reaches_the_learners():
    class Broken(ArrayData):
        def read(self, samples: Array, images: Array, labels: Array) -> None:
            raise RecordError("broken")

    data, feeder = Broken(np.zeros((9, 1, 2, 2)), np.zeros(9, int)), feeder_on(SimDriver())
    made = pipeline(data, DirectReader(data), ToGpu(data, feeder))
    with pytest.raises(RecordError, match=r"^broken$"):
        made.next()
    made.close()


def test_no_memory_for_slots_is_said_by_next():
    data, feeder = images(), feeder_on(SimDriver(free=100))
    made = pipeline(data, DirectReader(data), ToGpu(data, feeder))
    with pytest.raises(DeviceError, match=r"KiB for slots 0 to 3 do not fit: .*: set prefetch lower, or a smaller"):
        made.next()
    made.close()


def test_what_streams_waited_for_is_what_is_told():
    class Telling(Feeder):
        def waited(self) -> float:
            return 1.25

    data = images()
    feeder = feeder_on(SimDriver())
    feeder.__class__ = Telling
    assert ToGpu(data, feeder).waited(7.0) == 1.25
