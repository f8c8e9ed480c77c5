"""An array in a GPU's memory: its address, shape and type. It can be cut and handed on; it computes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
PlanArray: TypeAlias = Any  # in a plan: declared as NumPy's, on a GPU a DeviceArray
PlanArrays: TypeAlias = Mapping[str, PlanArray]  # by name


class DeviceArray:
    """The part of NumPy's array that plans and launches need. All reads and writes must be enqueued on a stream:

    so there is no arithmetic here that could run on another one by mistake. A NumPy array at the device's address
    stands for it, which NumPy cuts and never reads.
    """

    __array_ufunc__ = None

    def __init__(self, owner: object, there: npt.NDArray[Any]):
        """`owner` holds the memory that `there` is."""
        self.owner, self._there, self.ptr = owner, there, int(there.ctypes.data)
        self.shape, self.strides, self.dtype, self.flags = there.shape, there.strides, there.dtype, there.flags
        self.ndim, self.size, self.itemsize, self.nbytes = there.ndim, there.size, there.itemsize, there.nbytes
        self.c_contiguous = self.flags.c_contiguous

    @classmethod
    def over(cls, block: PlanArray, dtype: npt.DTypeLike, shape: Shape) -> DeviceArray:
        """The first bytes of a driver's block as an array (shape)."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        place = (int(block.data.ptr), False)
        octets = {"shape": (size,), "typestr": "|u1", "data": place, "version": 3}
        return cls(block, np.asarray(SimpleNamespace(__array_interface__=octets)).view(dtype).reshape(shape))

    @property
    def data(self) -> DeviceArray:
        return self

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "strides": self.strides,
            "version": 3,
        }

    def __len__(self) -> int:
        return len(self._there)

    def __getitem__(self, key: int | slice | tuple[int | slice, ...]) -> DeviceArray:
        keys = key if isinstance(key, tuple) else (key,)
        return DeviceArray(self.owner, self._there[(*keys, ...)])  # without ... NumPy would read a single element

    def view(self, dtype: npt.DTypeLike) -> DeviceArray:
        return DeviceArray(self.owner, self._there.view(dtype))

    def reshape(self, *shape: Any) -> DeviceArray:
        assert self.c_contiguous, (self.shape, self.strides)  # else NumPy would copy it
        return DeviceArray(self.owner, self._there.reshape(*shape))

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("an array in a GPU's memory: copy it to the host by Machine.host")

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype.name}, at {self.ptr:#x})"
