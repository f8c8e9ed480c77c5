"""Computing in 16 bits: the loss's scale in fp16, whose small gradients would else be 0, and copies of weights."""

import numpy as np

from mpibow.cuda.device.array import DeviceArray, PlanArray
from mpibow.cuda.device.machine import Machine
from mpibow.graph import Array

from .cudnn import pointer_of
from .flat import LOSS_SCALE

FIRST, INTERVAL = 65536.0, 2000  # good iterations until it is doubled


class LossScale:
    """`record` is a LOSS_SCALE in device memory, None in other precisions, which need none."""

    def __init__(self, machine: Machine, precision: str):
        self.record: DeviceArray | None = None
        self._machine = machine
        if precision == "fp16":
            self.record = machine.zeros(1, LOSS_SCALE, "the loss's scale")
            self.load(np.array([FIRST, 0]))

    def state(self) -> Array | None:
        """For a checkpoint: scale and good iterations."""
        if self.record is None:
            return None
        found = self._machine.host(self.record)[0]
        return np.array([found["scale"], found["good"]], np.float64)

    def load(self, state: Array) -> None:
        """Restores what `state` returned."""
        if self.record is not None:
            scale, good = state
            self._machine.put(self.record, np.array([(scale, 1 / scale, good, INTERVAL)], LOSS_SCALE))


NARROW = ("bfloat16", "float16")


class Shadows:
    """Flat arrays and their copies, element for element. An array without a copy stands for itself."""

    def __init__(self) -> None:
        self._pairs = list[tuple[DeviceArray, DeviceArray]]()

    def add(self, flat: DeviceArray, copy: DeviceArray) -> None:
        self._pairs.append((flat, copy))

    def whole(self, flat: DeviceArray) -> DeviceArray | None:
        """The copy of all of `flat`, where it has one."""
        return next((copy for own, copy in self._pairs if (own.ptr, own.size) == (flat.ptr, flat.size)), None)

    def of(self, array: PlanArray, dtype: str) -> PlanArray:
        """`array` as `dtype`: itself, or the matching part of a copy."""
        if dtype in NARROW and array.dtype.name == "float32":
            for flat, copy in self._pairs:
                first = (array.data.ptr - flat.ptr) // flat.itemsize
                if 0 <= first < flat.size:
                    return copy[first : first + array.size].reshape(array.shape)
        return array

    def address(self, array: PlanArray, dtype: str) -> int:
        return pointer_of(self.of(array, dtype), dtype)
