"""An array in a GPU's memory: its address, shape and type. It can be cut and handed on; it computes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
PlanArray: TypeAlias = Any  # in a plan: declared as NumPy's, on a GPU a DeviceArray
PlanArrays: TypeAlias = Mapping[str, PlanArray]  # by name


class DeviceArray:
    """The part of NumPy's array that plans and launches need. All reads and writes must be enqueued on a stream:

    so there is no arithmetic here that could run on another one by mistake.
    """

    __slots__ = ("dtype", "owner", "ptr", "shape", "strides")
    __array_ufunc__ = None

    def __init__(
        self, owner: object, ptr: int, shape: Shape, dtype: npt.DTypeLike, strides: Shape | None = None
    ) -> None:
        """`owner` holds the memory; `strides` are in bytes, row by row unless given."""
        self.owner, self.ptr, self.shape, self.dtype = owner, ptr, shape, np.dtype(dtype)
        self.strides = _packed(shape, self.dtype.itemsize) if strides is None else strides

    @classmethod
    def over(cls, block: PlanArray, dtype: npt.DTypeLike, shape: Shape) -> DeviceArray:
        """The first bytes of a driver's block as an array (shape)."""
        return cls(block, int(block.data.ptr), shape, dtype)

    @property
    def data(self) -> DeviceArray:
        return self

    @property
    def flags(self) -> DeviceArray:
        return self

    @property
    def c_contiguous(self) -> bool:
        packed = _packed(self.shape, self.itemsize)
        return self.size < 2 or all(a == b for n, a, b in zip(self.shape, self.strides, packed, strict=True) if n > 1)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

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
        return self.shape[0]

    def __getitem__(self, key: int | slice | tuple[int | slice, ...]) -> DeviceArray:
        """Integers and runs along the first axes."""
        keys = key if isinstance(key, tuple) else (key,)
        ptr, shape, strides = self.ptr, list[int](), list[int]()
        for one, extent, stride in zip(keys, self.shape, self.strides, strict=False):
            if isinstance(one, slice):
                start, stop, step = one.indices(extent)
                assert step == 1, key
                shape.append(max(stop - start, 0))
                strides.append(stride)
            else:
                start = range(extent)[one]
            ptr += start * stride
        rest = len(keys)
        return DeviceArray(self.owner, ptr, (*shape, *self.shape[rest:]), self.dtype, (*strides, *self.strides[rest:]))

    def view(self, dtype: npt.DTypeLike) -> DeviceArray:
        assert self.c_contiguous, (self.shape, self.strides)
        dtype = np.dtype(dtype)
        last, rest = divmod(self.shape[-1] * self.itemsize, dtype.itemsize)
        assert rest == 0, (self.shape, self.dtype, dtype)
        return DeviceArray(self.owner, self.ptr, (*self.shape[:-1], last), dtype)

    def reshape(self, *shape: int | Shape) -> DeviceArray:
        wanted: Shape = sum(((each,) if isinstance(each, int) else each for each in shape), ())
        assert self.c_contiguous, (self.shape, self.strides)
        if -1 in wanted:
            rest = -math.prod(wanted)
            wanted = tuple(self.size // rest if extent == -1 else extent for extent in wanted)
        assert math.prod(wanted) == self.size, (self.shape, wanted)
        return DeviceArray(self.owner, self.ptr, wanted, self.dtype)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("an array in a GPU's memory: copy it to the host by Machine.host")

    def __repr__(self) -> str:
        return f"DeviceArray({self.shape}, {self.dtype.name}, at {self.ptr:#x})"


def _packed(shape: Shape, itemsize: int) -> Shape:
    strides = [itemsize]
    for extent in shape[:0:-1]:
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides)) if shape else ()
