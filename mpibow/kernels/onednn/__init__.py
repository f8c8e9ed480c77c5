"""The CPU at speed: oneDNN's primitives, and kernels compiled by numba for the rest.

Elementwise functions, sums, products and concatenation are numba's single passes, not oneDNN's eltwise, binary, sum and
concat. oneDNN fuses only the operations behind a convolution (scale, shift, sum, relu) into it. Its matmul is not used:
a dense layer of few rows is an inner product, and other products are our own. Large ones are as fast as oneDNN's (255
GFLOP/s a core against 250); products of 64 x 64 x 32 run at 242 against 147.
"""

from dataclasses import replace

from mpibow.graph import KernelTable
from mpibow.graph.formats import Reorder
from mpibow.kernels.compiled.table import OPERATORS as COMPILED
from mpibow.kernels.numpy import OPERATORS as REFERENCE
from mpibow.kernels.onednn import low, winograd
from mpibow.ops import AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Dense, LocalResponseNorm, MaxPool2d
from mpibow.ops.fused import ConvNormAddRelu, ConvRelu, NormAddRelu

from .batch_norm import batch_norm
from .conv import Convolution, normalised
from .conv_transpose import transposed
from .dense import inner_product
from .library import Library
from .primitives import either
from .simple import local_responses, pooling, reordering


def operators(library: Library, fewer_products: bool = True) -> KernelTable:
    """oneDNN's kernels where it has them, else numba's, else NumPy's.

    A plan without NumPy's kernels is one call without Python; each of NumPy's is a separate run in between."""
    convolution = Convolution(library).kernel
    norm = batch_norm(library)
    pool = pooling(library)
    if library.wide and fewer_products:
        convolution = either(winograd.fits, winograd.KERNEL, convolution)
    if library.wide:
        convolution = either(low.fits, low.KERNEL, convolution)
    return {
        **{op: replace(kernel, reference=True) for op, kernel in REFERENCE.items()},
        **COMPILED,
        AvgPool2d: pool,
        BatchNorm: norm,
        Conv2d: convolution,
        ConvNormAddRelu: normalised(library),
        ConvRelu: convolution,
        ConvTranspose2d: transposed(library),
        Dense: inner_product(library),
        LocalResponseNorm: local_responses(library),
        MaxPool2d: pool,
        NormAddRelu: norm,
        Reorder: reordering(library),
    }
