"""DALI's work on the images of a run: raw ones, encoded ones on CPUs, encoded ones on a GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from mpibow.cuda.device.driver import Event, Memory
from mpibow.cuda.feed.feeder import Feeder
from mpibow.data.dataset import Array
from mpibow.data.orientation import stored_part, stored_points, turned
from mpibow.data.slots import Slot
from mpibow.errors import MpibowError
from mpibow.kernels.numpy.resize import reach

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
    windows: Array = field(default_factory=lambda: np.empty((0, 4)))  # (n, 4), upright
    parts: Array = field(default_factory=lambda: np.empty((0, 4), np.int64))  # (n, 4), upright: those that windows read
    error: MpibowError | None = None

    @classmethod
    def of(cls, slots: list[Slot]) -> DaliBatch:
        samples = np.concatenate([slot.samples for slot in slots])
        n = len(samples)
        sides, orientations = np.zeros((n, 2), np.int64), np.ones(n, np.int64)
        return cls(slots, samples, np.zeros(n, np.int32), sides, orientations, [samples] * n)

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


class Decoder(Protocol):
    """One way of making images (n, ...) of a run's bytes."""

    def graph(self, fn: Any, types: Any) -> Any:
        """The last of DALI's operators; `fn` and `types` are DALI's modules."""
        ...

    def plan(self, run: DaliBatch) -> None:
        """Sets the run's inputs, by the names of the graph's."""
        ...

    def deliver(self, run: DaliBatch, outputs: Any) -> None:
        """Fills the slots' images with DALI's outputs."""
        ...

    def close(self) -> None: ...


class Raw:
    """Images of one shape and `dtype`: their bytes in one array, which DALI passes on as it is."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype

    def graph(self, fn: Any, types: Any) -> Any:
        return fn.external_source(name="images", dtype=types.UINT8, ndim=1, no_copy=True)

    def plan(self, run: DaliBatch) -> None:
        run.inputs = {"images": np.stack(run.images)}

    def deliver(self, run: DaliBatch, outputs: Any) -> None:
        run.spread("image", np.asarray(outputs.as_tensor()).view(self._dtype))

    def close(self) -> None:
        pass


class OnHost:
    """DALI decodes the part of an image that its window reads, and `threads` threads scale it straight into the slot.

    DALI's own resize takes thrice as long on a CPU.
    """

    def __init__(self, windows: Windows, size: int, threads: int) -> None:
        from mpibow.kernels.compiled.resize import resize

        self._windows, self._size, self._threads, self._resize = windows, size, threads, resize
        self._pool = ThreadPoolExecutor(threads, "resize")

    def graph(self, fn: Any, types: Any) -> Any:
        return _part(fn, types, "cpu")

    def plan(self, run: DaliBatch) -> None:
        _plan(run, self._windows, self._size)

    def deliver(self, run: DaliBatch, outputs: Any) -> None:
        n, size = len(run.samples), self._size
        assert [shape[:2] for shape in outputs.shape()] == list(map(tuple, run.inputs["parts"][:, 2:].tolist()))
        sources = np.array([outputs[i].data_ptr() for i in range(n)])
        upright = {i: turned(np.asarray(outputs[i]), int(run.orientations[i])) for i in _lying(run)}
        for i, pixels in upright.items():
            sources[i] = pixels.ctypes.data
        targets = np.concatenate([_addresses(slot.arrays["image"]) for slot in run.slots])
        share = -(-n // self._threads)
        pieces = [slice(first, first + share) for first in range(0, n, share)]
        commands = [self._resize(size, *(each[piece] for each in (sources, run.parts, run.sides, run.windows, targets)))
                    for piece in pieces]  # fmt: skip
        others = [self._pool.submit(command) for command in commands[1:]]
        commands[0]()
        for other in others:
            other.result()

    def close(self) -> None:
        self._pool.shutdown()


class OnDevice:
    """DALI decodes and scales on the feeder's GPU, and its images are copied to the slots there: none passes the host.

    Windows are those of the host, decoding and scaling are DALI's on a GPU. The bits differ from those on CPUs, but
    do not depend on the runs. Its graph was built and its copies tried without a GPU; it never ran on one.
    """

    def __init__(self, windows: Windows, size: int, feeder: Feeder) -> None:
        self._windows, self._size, self._feeder = windows, size, feeder
        self._held: deque[tuple[Event, Any]] = deque()  # sources of copies under way

    def graph(self, fn: Any, types: Any) -> Any:
        corners = fn.external_source(name="corners", dtype=types.FLOAT, ndim=1, no_copy=True)
        transposed = fn.external_source(name="transposed", dtype=types.UINT8, ndim=0, no_copy=True)
        return scaled(fn, types, _part(fn, types, "mixed"), corners, transposed.gpu(), self._size)

    def plan(self, run: DaliBatch) -> None:
        _plan(run, self._windows, self._size)
        corners = np.stack([run.windows[:, :2], run.windows[:, :2] + run.windows[:, 2:]], axis=1)  # (n, 2, 2)
        for i in _lying(run):
            corners[i] = stored_points(corners[i], run.sides[i], int(run.orientations[i]))
        corners -= run.inputs["parts"][:, None, :2]
        run.inputs["corners"] = corners.reshape(-1, 4).astype(np.float32)
        run.inputs["transposed"] = (run.orientations > 4).astype(np.uint8)

    def deliver(self, run: DaliBatch, outputs: Any) -> None:
        """Enqueues the copies. The host has seen that the outputs are done; they stay DALI's until the copies are."""
        feeder, size = self._feeder, 3 * self._size**2
        addresses = [outputs[i].data_ptr() for i in range(len(run.samples))]
        first = 0
        for slot in run.slots:
            slot.device.open()
            images, n = slot.device.arrays["image"], len(slot.samples)
            for begin, end in in_a_row(addresses[first : first + n], size):
                source = Memory(addresses[first + begin], (end - begin) * size)
                feeder.driver.copy(images[begin:end], source, feeder.stream)
            first += n
        self._held.append((feeder.stream.record(), outputs))
        while len(self._held) > 1:
            self._let_go()

    def close(self) -> None:
        while self._held:
            self._let_go()

    def _let_go(self) -> None:
        self._held[0][0].synchronise()  # while they are held
        self._held.popleft()


def in_a_row(addresses: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Ranges of addresses that each lie `size` bytes after the one before."""
    breaks = [i for i in range(1, len(addresses)) if addresses[i] != addresses[i - 1] + size]
    return list(pairwise([0, *breaks, len(addresses)]))


def _plan(run: DaliBatch, windows: Windows, size: int) -> None:
    run.windows = np.ascontiguousarray(windows(run.sides, run.gather("counter")), np.float64)
    run.parts = reach(run.windows, run.sides, size)
    stored = run.parts.astype(np.int32)
    for i in _lying(run):
        stored[i] = stored_part(run.parts[i], run.sides[i], int(run.orientations[i]))
    run.inputs = {"images": run.images, "parts": stored}


def _lying(run: DaliBatch) -> list[int]:
    """The rows whose images have to be turned."""
    return np.flatnonzero(run.orientations > 1).tolist()


def scaled(fn: Any, types: Any, image: Any, corners: Any, transposed: Any, size: int) -> Any:
    """The window between two corners, which flips the image where the first lies behind, (3, size, size) upright."""
    image = fn.resize(
        image, size=(size, size), roi_start=corners[0:2], roi_end=corners[2:4], interp_type=types.INTERP_LINEAR,
        antialias=True,
    )  # fmt: skip
    first, other = (fn.transpose(image, perm=perm, transpose_layout=False) for perm in ([2, 0, 1], [2, 1, 0]))
    return first * fn.cast(1 - transposed, dtype=types.UINT8) + other * transposed


def _part(fn: Any, types: Any, device: str) -> Any:
    """Decodes one part of every image, the same bits as those of the whole; (height, width, 3) uint8."""
    images = fn.external_source(name="images", dtype=types.UINT8, ndim=1, no_copy=True)
    parts = fn.external_source(name="parts", dtype=types.INT32, ndim=1, no_copy=True)
    return fn.decoders.image_slice(
        images, start=parts[0:2], shape=parts[2:4], axes=[0, 1], device=device,
        output_type=types.RGB, adjust_orientation=False,
    )  # fmt: skip


def _addresses(images: Array) -> Array:
    """The address of each of the images (n, ...), int64."""
    assert images.flags.c_contiguous
    return images.ctypes.data + images.strides[0] * np.arange(len(images))
