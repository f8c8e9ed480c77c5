"""DALI's work on the images of a run: raw ones, and encoded ones on CPUs."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from mpibow.errors import MpibowError
from mpibow.kernels.numpy.resize import reach

from .dataset import Array, DType
from .image_header import stored_part, turned
from .slots import Slot

Windows = Callable[[Array, Array], Array]  # of sides (n, 2) and counters (n, 4): (n, 4), as in data.window


@dataclass
class DaliBatch:
    """The n samples that fill the `slots`, with replacements for damaged ones."""

    slots: list[Slot]
    samples: Array  # (n,) int64
    labels: Array  # (n,) int32
    sides: Array  # (n, 2) int64, height and width of encoded images, upright
    orientations: Array  # (n,) int64, Exif's
    images: list[Array]  # n, bytes as they are stored: views of the files
    inputs: dict[str, Any] = field(default_factory=dict)  # DALI's, by name, each of n; it reads them where they lie
    windows: Array = field(init=False)  # (n, 4), upright
    parts: Array = field(init=False)  # (n, 4), upright: those that windows read
    error: MpibowError | None = None

    @classmethod
    def of(cls, slots: list[Slot]) -> "DaliBatch":
        samples = np.concatenate([slot.samples for slot in slots])
        n = len(samples)
        sides = np.zeros((n, 2), np.int64)
        return cls(slots, samples, np.zeros(n, np.int32), sides, np.ones(n, np.int64), [samples] * n)

    def gather(self, name: str) -> Array:
        """An array (n, ...) of all slots' arrays `name`."""
        return np.concatenate([slot.arrays[name] for slot in self.slots])

    def spread(self, name: str, array: Array) -> None:
        """Copies an array (n, ...) to the slots' arrays `name`."""
        first = 0
        for slot in self.slots:
            target = slot.arrays[name]
            target[...] = array[first : first + len(target)].reshape(target.shape)
            first += len(target)


class Decoder:
    """One way of making images (n, ...) of a run's bytes."""

    def graph(self, fn: ModuleType, types: ModuleType) -> object:
        """The last of DALI's operators; `fn` and `types` are DALI's modules."""
        raise NotImplementedError

    def plan(self, run: DaliBatch) -> None:
        """Sets the run's inputs, by the names of the graph's."""
        raise NotImplementedError

    def deliver(self, run: DaliBatch, outputs: Any) -> None:
        """Fills the slots' images with DALI's outputs."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends what is under way."""


class Raw(Decoder):
    """Images of one shape and `dtype`: their bytes in one array, which DALI passes on as it is."""

    def __init__(self, dtype: DType):
        self._dtype = dtype

    def graph(self, fn: ModuleType, types: ModuleType) -> object:
        return fn.external_source(name="images", dtype=types.UINT8, ndim=1, no_copy=True)

    def plan(self, run: DaliBatch) -> None:
        run.inputs = {"images": np.stack(run.images)}

    def deliver(self, run: DaliBatch, outputs: Any) -> None:
        run.spread("image", np.asarray(outputs.as_tensor()).view(self._dtype))


class OnHost(Decoder):
    """DALI decodes the part of an image that its window reads, and `threads` threads scale it straight into the slot.

    DALI's own resize takes thrice as long on a CPU.
    """

    def __init__(self, windows: Windows, size: int, threads: int):
        from mpibow.kernels.compiled.resize import resize

        self._windows = windows
        self._size = size
        self._threads = threads
        self._resize = resize
        self._pool = ThreadPoolExecutor(threads, "resize")

    def graph(self, fn: ModuleType, types: ModuleType) -> object:
        return decoded_part(fn, types, "cpu")

    def plan(self, run: DaliBatch) -> None:
        plan_parts(run, self._windows, self._size)

    def deliver(self, run: DaliBatch, outputs: Any) -> None:
        n = len(run.samples)
        size = self._size
        assert [shape[:2] for shape in outputs.shape()] == list(map(tuple, run.inputs["parts"][:, 2:].tolist()))
        sources = np.array([outputs[i].data_ptr() for i in range(n)])
        upright = {i: turned(np.asarray(outputs[i]), int(run.orientations[i])) for i in lying(run)}
        for i, pixels in upright.items():
            sources[i] = pixels.ctypes.data
        targets = np.concatenate([_addresses(slot.arrays["image"]) for slot in run.slots])
        share = -(-n // self._threads)
        pieces = [slice(first, first + share) for first in range(0, n, share)]
        commands = [
            self._resize(size, *(each[piece] for each in (sources, run.parts, run.sides, run.windows, targets)))
            for piece in pieces
        ]
        others = [self._pool.submit(command) for command in commands[1:]]
        commands[0]()
        for other in others:
            other.result()

    def close(self) -> None:
        self._pool.shutdown()


def plan_parts(run: DaliBatch, windows: Windows, size: int) -> None:
    run.windows = np.ascontiguousarray(windows(run.sides, run.gather("counter")), np.float64)
    run.parts = reach(run.windows, run.sides, size)
    stored = run.parts.astype(np.int32)
    for i in lying(run):
        stored[i] = stored_part(run.parts[i], run.sides[i], int(run.orientations[i]))
    run.inputs = {"images": run.images, "parts": stored}


def lying(run: DaliBatch) -> list[int]:
    """The rows whose images have to be turned."""
    return np.flatnonzero(run.orientations > 1).tolist()


def decoded_part(fn: ModuleType, types: ModuleType, device: str) -> object:
    """Decodes one part of every image, the same bits as those of the whole; (height, width, 3) uint8."""
    images = fn.external_source(name="images", dtype=types.UINT8, ndim=1, no_copy=True)
    parts = fn.external_source(name="parts", dtype=types.INT32, ndim=1, no_copy=True)
    return fn.decoders.image_slice(
        images,
        start=parts[0:2],
        shape=parts[2:4],
        axes=[0, 1],
        device=device,
        output_type=types.RGB,
        adjust_orientation=False,
    )


def _addresses(images: Array) -> Array:
    """The address of each of the images (n, ...), int64."""
    assert images.flags.c_contiguous
    return images.ctypes.data + images.strides[0] * np.arange(len(images))
