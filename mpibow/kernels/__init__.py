"""The kernel sets by name: how operators and flat-array passes are computed on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from mpibow.graph.kernel import KernelTable
from mpibow.kernels import numpy as reference
from mpibow.kernels.numpy import flat
from mpibow.kernels.passes import FlatKernels


@dataclass(frozen=True)
class KernelSet:
    """One library's kernels: operator -> kernel, and the passes over flat arrays."""

    name: str
    operators: KernelTable
    flat: FlatKernels
    precisions: tuple[str, ...]


KERNEL_SETS: Mapping[str, KernelSet] = {
    "numpy": KernelSet("numpy", reference.OPERATORS, cast(FlatKernels, flat), ("float32", "float64")),
}
