"""The reference kernels: plain NumPy, float32 or float64, always available. Every operator's module defines its own."""

from mpibow.graph import KernelTable
from mpibow.ops import KERNELS

OPERATORS: KernelTable = KERNELS
