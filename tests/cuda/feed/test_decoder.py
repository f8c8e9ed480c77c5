"""DALI on a GPU, as far as there is none: its graph, what it is told, and how its images reach the slots.

A pipe that is made up decodes by the reference in the place of DALI's.
"""

import io
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from mpibow.cuda.feed.decoder import OnDevice, in_a_row
from mpibow.cuda.feed.feeder import DeviceSlot
from mpibow.cuda.feed.togpu import ToGpu, open_source
from mpibow.data import Array, Image, dali
from mpibow.data.dali import Dali
from mpibow.data.dali_decoders import DaliBatch, OnHost
from mpibow.data.decoded import Decoded
from mpibow.data.loading import Loading
from mpibow.data.pipeline_choice import PipelineChoice
from mpibow.kernels.numpy.resize import resize
from tests.cuda.device.simulated import SimDriver
from tests.cuda.feed.test_feeder import feeder_on
from tests.cuda.feed.test_feeds import BATCH, HOST, Batches, pipeline
from tests.data.photos import bars, records
from tests.data.slots import image_slot

pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install -e '.[dev]'")
SIZE, COUNT = 8, 20


class Outputs:
    """A list of tensors in DALI's memory, which is used again as soon as nobody holds it."""

    def __init__(self, memory: Array, rows: list[int]) -> None:
        self._memory, self._rows = memory, rows

    def __getitem__(self, i: int):
        memory, row = self._memory, self._rows[i]

        class Tensor:
            def data_ptr(self) -> int:
                return int(memory[row].ctypes.data)

        return Tensor()

    def __del__(self) -> None:
        self._memory[...] = 255


class Pipe:
    """What of DALI's pipelines is used. `apart`: whether images lie next to one another."""

    memories: list[Array] = []  # noqa: RUF012  what __del__ writes to must be there still

    def __init__(self, apart: bool) -> None:
        self._apart, self._inputs = apart, {}
        self._runs = deque()

    def feed_input(self, name: str, batch) -> None:
        self._inputs[name] = batch

    def schedule_run(self) -> None:
        self._runs.append(self._inputs)
        self._inputs = {}

    def share_outputs(self) -> list[Outputs]:
        run = self._runs.popleft()
        n = len(run["images"])
        memory = np.zeros((2 * n, 3, SIZE, SIZE), np.uint8)
        rows = [2 * i for i in range(n)] if self._apart else list(range(n))
        self.memories.append(memory)
        for i, row in enumerate(rows):
            try:
                image = np.asarray(pillow.open(io.BytesIO(bytes(run["images"][i]))).convert("RGB"))
            except OSError as error:
                raise RuntimeError("nvjpeg error") from error
            corner, ends = run["corners"][i][:2], run["corners"][i][2:]
            window = np.concatenate([run["parts"][i][:2] + corner, ends - corner]).astype(np.float64)
            sides = np.array(image.shape[:2])
            resize(image, np.array([0, 0, *sides]), sides, window, memory[row])
        return [Outputs(memory, rows)]

    def release_outputs(self) -> None:
        pass


@pytest.fixture
def made_up(monkeypatch) -> None:
    monkeypatch.setattr(dali, "available", lambda: "")
    monkeypatch.setattr(Dali, "_built", lambda self, most: Pipe(apart=most % 2 == 1))


def set_of(folder: Path, damaged: int | None = None) -> Decoded:
    images = bars(COUNT)
    if damaged is not None:
        image, label = images[damaged]
        images[damaged] = image[: image.index(b"\xff\xda") + 20], label
    return Decoded(records(folder / "set", images), Image(SIZE), (0.2, 1.0))


def seen(
    choice: PipelineChoice, data: Decoded, seed: int | None, limit: int = 0, samples: int = 7, prefetch: int = 4
) -> Batches:
    """What learners find; on a GPU that is simulated, by `seed`, or else on the host."""
    driver, loading = SimDriver(seed or 0), Loading(data, {}, choice, BATCH, prefetch, most_damaged=limit)
    if seed is None:
        reader, feed = loading.open()
    else:
        reader, feed = open_source(loading, feeder_on(driver), lambda launches: lambda stream: None)
        assert isinstance(reader, Dali)
        assert isinstance(reader.decoder, OnDevice)
        reader.samples = samples
    made = pipeline(data, reader, feed, prefetch)
    streams = [driver.stream() for _ in range(2)]
    found = {}

    def keep(arrays: dict[str, Array], t: int, j: int) -> None:
        found[t, j] = {name: array.tolist() for name, array in sorted(arrays.items())}

    try:
        for t in range(10):
            for j, slot in enumerate(made.next()):
                if seed is None:
                    keep(slot.arrays, t, j)
                    slot.release()
                    continue
                slot.await_on(streams[j])
                streams[j].enqueue(lambda slot=slot, t=t, j=j: keep(slot.device.arrays, t, j))
                slot.release_after(streams[j])
        driver.machine.finish()
    finally:
        made.close()
    return found


GPU = PipelineChoice("dali", "", on_device=True)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("samples", [3, 7, 64])
@pytest.mark.parametrize("seed", range(4))
def test_images_go_from_dalis_memory_to_the_slots(tmp_path, seed, samples):
    """The windows are those of the host, labels and counters as well."""
    data = set_of(tmp_path)
    assert seen(GPU, data, seed, samples=samples) == seen(HOST, data, None)


@pytest.mark.usefixtures("made_up")
def test_a_damaged_image_is_replaced(tmp_path):
    data = set_of(tmp_path, damaged=4)
    assert seen(GPU, data, 1, limit=1) == seen(HOST, data, None, limit=1)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("missing", ["hold", "open"])
def test_memory_that_is_given_back_too_early_shows(tmp_path, monkeypatch, missing):
    data = set_of(tmp_path)
    right = seen(HOST, data, None, prefetch=1)
    if missing == "hold":

        def deliver(self: OnDevice, run: DaliBatch, outputs, whole=OnDevice.deliver) -> None:
            whole(self, run, outputs)
            self._held.clear()

        monkeypatch.setattr(OnDevice, "deliver", deliver)
    else:
        monkeypatch.setattr(DeviceSlot, "open", lambda self: None)
    assert any(seen(GPU, data, seed, prefetch=1) != right for seed in range(16))


@pytest.mark.usefixtures("made_up")
def test_on_cpus_the_decoder_is_another_and_slots_are_copied(tmp_path):
    pytest.importorskip("numba", reason="numba is not installed: pip install -e '.[cpu]'")
    loading = Loading(set_of(tmp_path), {}, PipelineChoice("dali", ""), BATCH, 1)
    reader, feed = open_source(loading, feeder_on(SimDriver()), lambda launches: lambda stream: None)
    assert isinstance(reader, Dali)
    assert isinstance(reader.decoder, OnHost)
    assert isinstance(feed, ToGpu)
    assert feed.sent == ("image", "label", "counter")
    reader.close()


def test_what_lies_in_a_row_is_copied_at_once():
    assert in_a_row([100, 110, 130, 140, 90], 10) == [(0, 2), (2, 4), (4, 5)]


@pytest.mark.dali
def test_the_graph_is_one_that_dali_knows():
    """Its operators and their arguments, and that what comes out is on the device; without a GPU it can't be built."""
    from nvidia.dali import Pipeline as Graph, fn, types

    def windows(sides: Array, counter: Array) -> Array:
        return np.zeros((len(sides), 4))

    with Graph(batch_size=2, num_threads=1, device_id=0, exec_dynamic=True):
        assert OnDevice(windows, SIZE, feeder_on(SimDriver())).graph(fn, types).device == "gpu"


def test_what_a_gpu_is_told():
    """Of a 90 x 60 image rows 20 to 68 and columns 0 to 24, scaled to 24: triangles 2 and 1 wide, and one to spare."""
    run = DaliBatch.of([image_slot(1, (3, 24, 24))])
    run.sides[0], run.images = (90, 60), [np.zeros(5, np.uint8)]
    decoder = OnDevice(lambda sides, counter: np.array([[20.0, 0.0, 48.0, 24.0]]), 24, feeder_on(SimDriver()))
    decoder.plan(run)
    assert list(run.inputs) == ["images", "parts", "corners", "transposed"]
    assert run.inputs["parts"].tolist() == [[18, 0, 53, 26]]
    assert run.inputs["corners"].tolist() == [[2, 0, 50, 24]]
    assert (run.inputs["parts"].dtype, run.inputs["corners"].dtype) == (np.int32, np.float32)
