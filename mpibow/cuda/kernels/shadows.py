"""16-bit copies of float32 weights: they serve cuDNN, and a replica keeps the originals."""

from __future__ import annotations

from typing import Any

from mpibow.cuda.device.array import DeviceArray
from mpibow.cuda.kernels.cudnn import pointer_of

NARROW = ("bfloat16", "float16")


class Shadows:
    """Flat arrays and their copies, element for element. An array without a copy stands for itself."""

    def __init__(self) -> None:
        self._pairs: list[tuple[DeviceArray, DeviceArray]] = []

    def add(self, flat: DeviceArray, copy: DeviceArray) -> None:
        self._pairs.append((flat, copy))

    def whole(self, flat: DeviceArray) -> DeviceArray | None:
        """The copy of all of `flat`, where it has one."""
        return next((copy for own, copy in self._pairs if (own.ptr, own.size) == (flat.ptr, flat.size)), None)

    def of(self, array: Any, dtype: str) -> Any:
        """`array` as `dtype`: itself, or the matching part of a copy."""
        if dtype in NARROW and array.dtype.name == "float32":
            for flat, copy in self._pairs:
                first = (array.data.ptr - flat.ptr) // flat.itemsize
                if 0 <= first < flat.size:
                    return copy[first : first + array.size].reshape(array.shape)
        return array

    def address(self, array: Any, dtype: str) -> int:
        return pointer_of(self.of(array, dtype), dtype)
