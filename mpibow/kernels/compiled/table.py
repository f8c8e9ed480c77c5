"""The kernels that numba compiles, by operator: the KERNELS of all modules that have some."""

from mpibow.graph.kernel import KernelTable
from mpibow.kernels.compiled import (
    boxes,
    broadcast,
    colour,
    dropout,
    elementwise,
    heads,
    image,
    loss,
    matmul,
    means,
    mixup,
    norms,
    pointwise,
    recurrent,
    reduce,
    rotary,
    rows,
    softmax,
    upsample,
)

MODULES = (
    boxes,
    pointwise,
    broadcast,
    colour,
    dropout,
    elementwise,
    heads,
    image,
    loss,
    matmul,
    means,
    mixup,
    norms,
    recurrent,
    reduce,
    rotary,
    rows,
    softmax,
    upsample,
)
OPERATORS: KernelTable = {op: kernel for module in MODULES for op, kernel in module.KERNELS.items()}
