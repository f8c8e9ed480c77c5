"""The sides of bench_pipeline.py that are Python with mpibow or DALI, see peer_loop.

python -m benchmarks.data.pipeline_sides SIDE BATCH FOLDER
"""

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.data.peer_loop import serve
from mpibow.data import ArrayData, RecordSet, Samples, Slot, fixed, open_records
from mpibow.data.decoded import random_windows
from mpibow.data.pipeline import Pipeline
from mpibow.data.readers import DirectReader, Reader
from mpibow.graph import Graph, choose_layout, compile_plan, initial_weights
from mpibow.kernels import find_kernels
from mpibow.ops import augment, normalise

SIZE, AREA, ASPECT = 224, (0.08, 1.0), (3 / 4, 4 / 3)
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
RUN = 64  # images that DALI is given at once


class Encoded:
    """Encoded records as a pipeline sees them."""

    def __init__(self, data: RecordSet) -> None:
        self.name, self.count, self.classes, self.mean, self.std = data.name, data.count, data.classes, MEAN, STD
        self.shape, self.dtype = (3, SIZE, SIZE), np.dtype(np.uint8)

    def read(self, samples: object, images: object, labels: object) -> None:
        raise AssertionError("the reader does it")


def slots(data: Samples, reader: Reader, batch: int, ahead: int) -> Callable[[], Slot]:
    """The next slot of a pipeline of one learner, `ahead` images of which are read ahead."""
    timeline, prefetch = fixed(batch, (1,)), max(2, ahead // batch)
    made = Pipeline(data, reader, lambda: timeline, rank=0, iteration=0, seed=1, prefetch=prefetch)
    return lambda: made.next()[0]


def flipped(batch: int) -> Callable[[Slot], None]:
    """What a training graph begins with: a copy of the slot, flips and normalisation, into float32."""
    graph = Graph()
    image = graph.input("image", (batch, 3, SIZE, SIZE), "uint8")
    graph.output("seen", normalise(augment(image, flip=True), MEAN, STD))
    kernels, _ = find_kernels("auto", "float32", None)
    layout = choose_layout(graph, kernels, training=False)
    plan = compile_plan(graph, layout, kernels, "float32", training=False).bind(initial_weights(layout, 0, "float32"))

    def run(slot: Slot) -> None:
        for name, array in plan.inputs.items():
            np.copyto(array, slot.arrays[name])
        slot.release()
        plan.run()

    return run


def trained(data: Samples, reader: Reader, batch: int) -> Callable[[], int]:
    take, see = slots(data, reader, batch, 3 * RUN), flipped(batch)

    def step() -> int:
        see(take())
        return batch

    return step


def with_dali(batch: int, folder: Path) -> Callable[[], int]:
    from mpibow.data.dali import Dali

    data = open_records(folder / "records")
    windows = partial(random_windows, area=AREA, aspect=ASPECT)
    return trained(Encoded(data), Dali(data, windows, SIZE, threads=1, samples=RUN), batch)


def with_host(batch: int, folder: Path) -> Callable[[], int]:
    from mpibow.data import Image
    from mpibow.data.damage import Damages
    from mpibow.data.decoded import Decoded, decoding_reader

    data = open_records(folder / "records")
    decoded = Decoded(data, Image(size=SIZE), AREA, ASPECT)
    return trained(decoded, decoding_reader(decoded, Damages(data.name, data.count, 0), 1), batch)


def plain_dali(batch: int, folder: Path, fused: bool) -> Callable[[], int]:
    """As DALI's documentation has it for a CPU: with the window decoded alone (`fused`), or cut while it is resized."""
    from nvidia.dali import Pipeline as Dali, fn, types

    pipe = Dali(batch_size=batch, num_threads=1, device_id=None, seed=1)
    window = {"random_area": list(AREA), "random_aspect_ratio": list(ASPECT)}
    with pipe:
        files, labels = fn.readers.file(file_root=str(folder / "files"), random_shuffle=True, name="reader")
        if fused:
            images = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, **window)
            images = fn.resize(images, size=(SIZE, SIZE), interp_type=types.INTERP_LINEAR, antialias=True)
        else:
            images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
            images = fn.random_resized_crop(images, size=(SIZE, SIZE), interp_type=types.INTERP_LINEAR, **window)
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", mean=MEAN, std=STD, mirror=fn.random.coin_flip()
        )
        pipe.set_outputs(images, labels)
    pipe.build()

    def step() -> int:
        pipe.run()
        return batch

    return step


def raw(batch: int, folder: Path, resident: bool) -> Callable[[], int]:
    """CIFAR's shape, from records or from memory; taken and given back."""
    data = open_records(folder / "raw")
    if resident:
        images, labels = np.empty((data.count, *data.shape), data.dtype), np.empty(data.count, np.int32)
        data.read(np.arange(data.count), images, labels)
        data = ArrayData(images, labels)
    take = slots(data, DirectReader(data), batch, 512)

    def step() -> int:
        take().release()
        return batch

    return step


SIDES: Mapping[str, Callable[[int, Path], Callable[[], int]]] = {
    "dali": with_dali,
    "host": with_host,
    "plain-dali-fused": partial(plain_dali, fused=True),
    "plain-dali": partial(plain_dali, fused=False),
    "raw-records": partial(raw, resident=False),
    "raw-memory": partial(raw, resident=True),
}


def main() -> None:
    side, batch, folder = sys.argv[1:]
    packages = {"numpy": "NumPy", "numba": "numba", "pillow": "Pillow", "nvidia-dali-cuda130": "DALI"}
    versions = {"Python": sys.version.split()[0]}
    for package, name in packages.items():
        try:
            versions[name] = version(package)
        except ModuleNotFoundError:
            continue
    serve(SIDES[side](int(batch), Path(folder)), versions)
    os._exit(0)  # threads of the side may still wait for their next turn


if __name__ == "__main__":
    main()
