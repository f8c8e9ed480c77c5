"""The kernels that numba compiles, by operator: the KERNELS of all modules that have some."""

from importlib import import_module

from mpibow.graph import KernelTable

MODULES = (
    "boxes",
    "pointwise",
    "broadcast",
    "colour",
    "dropout",
    "elementwise",
    "heads",
    "image",
    "loss",
    "matmul",
    "means",
    "mixup",
    "norms",
    "recurrent",
    "reduce",
    "rotary",
    "rows",
    "softmax",
    "upsample",
)
_FOUND = [import_module(f"{__package__}.{name}") for name in MODULES]
OPERATORS: KernelTable = {op: kernel for module in _FOUND for op, kernel in module.KERNELS.items()}
