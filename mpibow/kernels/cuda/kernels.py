"""All of mpibow's own CUDA kernels by name, and how one is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

THREADS = 256  # of a block: each.cuh says the same
BLOCKS = 8192  # of a grid whose threads take several turns: enough to fill any device
TYPES = {"float32": "float", "float16": "half", "bfloat16": "bfloat16"}  # what activations may be, and its C++ name

Grid = tuple[int, int, int]

_FLOAT = tuple(TYPES.values())
# source -> kernel -> the values of each of its template's parameters
_FAMILIES: Mapping[str, Mapping[str, Sequence[Sequence[str]]]] = {
    "flat.cu": {
        "sma_update": (),
        "sma_alone": (),
        "gradient_sum": (),
        "sgd_update": (),
        "centre_update": (),
        "add_scaled": (),
        "chunk_squares": (),
        "sum_parts": (("double", "float"),),
        "follow_gain": (),
        "follow_scale": (),
    },
}


def instance(kernel: str, *values: str) -> str:
    """The C++ name of a kernel: what NVRTC is asked for."""
    return f"{kernel}<{', '.join(values)}>" if values else kernel


KERNELS: Mapping[str, str] = {  # kernel -> its source
    instance(kernel, *values): source
    for source, kernels in _FAMILIES.items()
    for kernel, parameters in kernels.items()
    for values in product(*parameters)
}


@dataclass(frozen=True)
class Launch:
    """One launch: which kernel, on how many blocks of how many threads, with which arguments in its own order.

    An argument is an array on the device, whose address is passed, None for none, or a NumPy scalar of the type that
    the kernel takes; a struct by value is a NumPy void.
    """

    kernel: str
    grid: Grid
    arguments: tuple[Any, ...]
    block: Grid = (THREADS, 1, 1)

    def __post_init__(self) -> None:
        assert self.kernel in KERNELS, self.kernel


def blocks(count: int) -> Grid:
    """The grid for `count` threads' worth of work that may be taken in turns."""
    return (max(1, min(-(-count // THREADS), BLOCKS)), 1, 1)


def lanes(*dtypes: Any) -> int:
    """Elements that a thread takes at once of arrays of these types: 16 bytes of the widest."""
    return 16 // max(np.dtype(dtype).itemsize for dtype in dtypes)
