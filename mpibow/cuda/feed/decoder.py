"""DALI's work on encoded images on a GPU."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from mpibow.cuda.device.cupy_driver import Event
from mpibow.cuda.device.driver import Memory
from mpibow.data.dali_decoders import DaliBatch, Decoder, Windows, decoded_part, lying, plan_parts
from mpibow.data.image_header import stored_points

from .feeder import Feeder

DaliObject: TypeAlias = Any  # of DALI, which has no types


class OnDevice(Decoder):
    """DALI decodes and scales on the feeder's GPU, and its images are copied to the slots there: none passes the host.

    Windows are those of the host, decoding and scaling are DALI's on a GPU. The bits differ from those on CPUs, but
    do not depend on the runs. Its graph was built and its copies tried without a GPU; it never ran on one.
    """

    def __init__(self, windows: Windows, size: int, feeder: Feeder):
        self._windows, self._size, self._feeder = windows, size, feeder
        self._held = deque[tuple[Event, DaliObject]]()  # sources of copies under way

    def graph(self, fn: ModuleType, types: ModuleType) -> DaliObject:
        corners = fn.external_source(name="corners", dtype=types.FLOAT, ndim=1, no_copy=True)
        transposed = fn.external_source(name="transposed", dtype=types.UINT8, ndim=0, no_copy=True)
        return scaled(fn, types, decoded_part(fn, types, "mixed"), corners, transposed.gpu(), self._size)

    def plan(self, run: DaliBatch) -> None:
        plan_parts(run, self._windows, self._size)
        corners = np.stack([run.windows[:, :2], run.windows[:, :2] + run.windows[:, 2:]], axis=1)  # (n, 2, 2)
        for i in lying(run):
            corners[i] = stored_points(corners[i], run.sides[i], int(run.orientations[i]))
        corners -= run.inputs["parts"][:, None, :2]
        run.inputs["corners"] = corners.reshape(-1, 4).astype(np.float32)
        run.inputs["transposed"] = (run.orientations > 4).astype(np.uint8)

    def deliver(self, run: DaliBatch, outputs: DaliObject) -> None:
        """Enqueues the copies. The host has seen that the outputs are done; they stay DALI's until the copies are."""
        feeder, size = self._feeder, 3 * self._size**2
        addresses = [outputs[i].data_ptr() for i in range(len(run.samples))]
        first = 0
        slot: Any
        for slot in run.slots:
            slot.device.open()
            images, n = slot.device.arrays["image"], len(slot.samples)
            for begin, end in in_a_row(addresses[first : first + n], size):
                source = Memory(addresses[first + begin], (end - begin) * size)
                feeder.driver.copy(images[begin:end], source, feeder.stream)
            first += n
        self._held.append((feeder.stream.record(), outputs))
        self._let_go(1)

    def close(self) -> None:
        self._let_go(0)

    def _let_go(self, but: int) -> None:
        while len(self._held) > but:
            self._held[0][0].synchronise()  # while they are held
            self._held.popleft()


def in_a_row(addresses: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Ranges of addresses that each lie `size` bytes after the one before."""
    breaks = [i for i in range(1, len(addresses)) if addresses[i] != addresses[i - 1] + size]
    return list(pairwise([0, *breaks, len(addresses)]))


def scaled(
    fn: ModuleType, types: ModuleType, image: DaliObject, corners: DaliObject, transposed: DaliObject, size: int
) -> DaliObject:
    """The window between two corners, which flips the image where the first lies behind, (3, size, size) upright."""
    image = fn.resize(
        image,
        size=(size, size),
        roi_start=corners[0:2],
        roi_end=corners[2:4],
        interp_type=types.INTERP_LINEAR,
        antialias=True,
    )
    first, other = (fn.transpose(image, perm=perm, transpose_layout=False) for perm in ([2, 0, 1], [2, 1, 0]))
    return first * fn.cast(1 - transposed, dtype=types.UINT8) + other * transposed
