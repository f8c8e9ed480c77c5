"""The CPU at speed: oneDNN's primitives, and kernels compiled by numba for the rest.

Elementwise functions, sums, products and concatenation are numba's single passes, not oneDNN's eltwise, binary, sum and
concat. oneDNN fuses only the operations behind a convolution (scale, shift, sum, relu) into it. Its matmul is not used:
a dense layer of few rows is an inner product, and other products are our own. Large ones are as fast as oneDNN's (255
GFLOP/s a core against 250); products of 64 x 64 x 32 run at 242 against 147.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpibow.graph.formats import Reorder
from mpibow.graph.fuse import fuse
from mpibow.graph.graph import Graph, Operator
from mpibow.graph.kernel import Kernel, KernelTable
from mpibow.kernels.compiled import means
from mpibow.kernels.compiled.table import OPERATORS as COMPILED
from mpibow.kernels.numpy import OPERATORS as REFERENCE
from mpibow.kernels.onednn import low, winograd
from mpibow.kernels.onednn.batch_norm import BatchNormalisation
from mpibow.kernels.onednn.conv import Convolution, ConvolutionNormalised
from mpibow.kernels.onednn.conv_transpose import ConvolutionTransposed
from mpibow.kernels.onednn.dense import InnerProduct
from mpibow.kernels.onednn.heads import heads_together
from mpibow.kernels.onednn.library import Library
from mpibow.kernels.onednn.pool import Pooling
from mpibow.kernels.onednn.simple import LocalResponse, Reordering
from mpibow.kernels.onednn.turned import turned_together
from mpibow.ops import (
    AdaptiveAvgPool2d,
    Add,
    AvgPool2d,
    BatchNorm,
    Conv2d,
    ConvTranspose2d,
    Dense,
    Expand,
    LocalResponseNorm,
    MaxPool2d,
    Multiply,
    Relu,
)
from mpibow.ops.fused import AddRelu, ConvNormAddRelu, ConvRelu, ExpandAdd, ExpandMultiply, NormAddRelu


def operators(library: Library, fewer_products: bool = True) -> KernelTable:
    """oneDNN's kernels where it has them, else numba's, else NumPy's.

    A plan without NumPy's kernels is one call without Python; each of NumPy's is a separate run in between."""
    own = (winograd, low) if fewer_products else (low,)
    convolution, normalised = Convolution(library, own), ConvolutionNormalised(library)
    norm, pooling = BatchNormalisation(library), Pooling(library)
    return {
        **{op: replace(kernel, reference=True) for op, kernel in REFERENCE.items()},
        **COMPILED,
        AdaptiveAvgPool2d: Kernel(means.forward, means.backward),
        AvgPool2d: _layer(pooling),
        BatchNorm: _layer(norm),
        Conv2d: replace(_layer(convolution), inputs_alone=True),
        ConvNormAddRelu: Kernel(normalised.forward, None, normalised.buffers, normalised.formats, normalised.slow),
        ConvRelu: replace(_layer(convolution), inputs_alone=True),
        ConvTranspose2d: replace(_layer(ConvolutionTransposed(library)), inputs_alone=True),
        Dense: replace(_layer(InnerProduct(library)), inputs_alone=True),
        LocalResponseNorm: _kernel(LocalResponse(library)),
        MaxPool2d: _layer(pooling),
        NormAddRelu: _layer(norm),
        Reorder: _kernel(Reordering(library)),
    }


def _kernel(kernels: Any) -> Kernel:
    return Kernel(kernels.forward, kernels.backward, kernels.buffers, kernels.formats)


def _layer(kernels: Any) -> Kernel:
    """A layer's kernel, which reports oneDNN's reference code; for small operators that code is fast enough."""
    return replace(_kernel(kernels), slow=kernels.slow)


def conv_relu(chain: tuple[Operator, ...]) -> Operator | None:
    match chain:
        case (Conv2d() as conv, Relu()):
            return ConvRelu(conv)
    return None


def conv_norm_add_relu(chain: tuple[Operator, ...]) -> Operator | None:
    """Convolutions in groups are not fused: their weights are reordered on the way."""
    match chain:
        case (Conv2d(groups=1) as conv, BatchNorm() as norm):
            return ConvNormAddRelu(conv, norm, added=False, relu=False)
        case (Conv2d(groups=1) as conv, BatchNorm() as norm, Relu()):
            return ConvNormAddRelu(conv, norm, added=False, relu=True)
        case (Conv2d(groups=1) as conv, BatchNorm() as norm, Add((1.0, 1.0)), Relu()):
            return ConvNormAddRelu(conv, norm, added=True, relu=True)
    return None


def norm_add_relu(chain: tuple[Operator, ...]) -> Operator | None:
    match chain:
        case (BatchNorm(sync="learner") as norm, Relu()):
            return NormAddRelu(norm, added=False)
        case (BatchNorm(sync="learner") as norm, Add((1.0, 1.0)), Relu()):
            return NormAddRelu(norm, added=True)
    return None


def add_relu(chain: tuple[Operator, ...]) -> Operator | None:
    match chain:
        case (Add((1.0, 1.0)), Relu()):
            return AddRelu()
    return None


def expand_and(chain: tuple[Operator, ...]) -> Operator | None:
    match chain:
        case (Expand(), Add((1.0, 1.0))):
            return ExpandAdd()
        case (Expand(), Multiply(2)):
            return ExpandMultiply()
    return None


def rewrite(graph: Graph, training: bool) -> Graph:
    """Training needs the values between convolution and batch norm, evaluation does not."""
    whole = () if training else (conv_norm_add_relu,)
    graph = turned_together(heads_together(graph))
    return fuse(graph, (*whole, conv_relu, norm_add_relu, add_relu, expand_and), longest=4)
