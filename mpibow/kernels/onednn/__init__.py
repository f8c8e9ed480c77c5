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
from mpibow.graph.graph import Graph, Op
from mpibow.graph.kernel import Kernel, KernelTable
from mpibow.graph.rewrite import fuse
from mpibow.kernels.compiled import means
from mpibow.kernels.compiled.table import OPERATORS as COMPILED
from mpibow.kernels.numpy import OPERATORS as REFERENCE
from mpibow.kernels.onednn import low, winograd
from mpibow.kernels.onednn.batch_norm import batch_norm
from mpibow.kernels.onednn.choice import either
from mpibow.kernels.onednn.conv import Convolution, ConvolutionNormalised, plain
from mpibow.kernels.onednn.conv_transpose import ConvolutionTransposed
from mpibow.kernels.onednn.dense import inner_product
from mpibow.kernels.onednn.heads import heads_together
from mpibow.kernels.onednn.library import Library
from mpibow.kernels.onednn.simple import local_responses, pooling, reordering
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
    own = ((winograd, low) if fewer_products else (low,)) if library.wide else ()
    convolution, norm, pool = Convolution(library).kernel, batch_norm(library), pooling(library)
    for module in reversed(own):
        convolution = _where_faster(module, convolution)
    return {
        **{op: replace(kernel, reference=True) for op, kernel in REFERENCE.items()},
        **COMPILED,
        AdaptiveAvgPool2d: Kernel(means.forward, means.backward),
        AvgPool2d: pool,
        BatchNorm: norm,
        Conv2d: convolution,
        ConvNormAddRelu: ConvolutionNormalised(library).kernel,
        ConvRelu: convolution,
        ConvTranspose2d: ConvolutionTransposed(library).kernel,
        Dense: inner_product(library),
        LocalResponseNorm: local_responses(library),
        MaxPool2d: pool,
        NormAddRelu: norm,
        Reorder: reordering(library),
    }


def _where_faster(module: Any, convolution: Kernel) -> Kernel:
    """The kernel of a module of our own convolutions where it fits."""
    own = Kernel(module.forward, module.backward, module.buffers, lambda op, shapes, given: module.FORMATS)
    return either(lambda op, shapes: module.fits(plain(op), shapes), own, convolution)


def evaluation_fusion(chain: tuple[Op, ...]) -> Op | None:
    """Convolutions in groups are not fused: their weights are reordered on the way."""
    match chain:
        case (Conv2d(groups=1) as conv, BatchNorm() as norm):
            return ConvNormAddRelu(conv, norm, added=False, relu=False)
        case (Conv2d(groups=1) as conv, BatchNorm() as norm, Relu()):
            return ConvNormAddRelu(conv, norm, added=False, relu=True)
        case (Conv2d(groups=1) as conv, BatchNorm() as norm, Add((1.0, 1.0)), Relu()):
            return ConvNormAddRelu(conv, norm, added=True, relu=True)
    return training_fusion(chain)


def training_fusion(chain: tuple[Op, ...]) -> Op | None:
    """Training needs the values between convolution and batch norm."""
    match chain:
        case (Conv2d() as conv, Relu()):
            return ConvRelu(conv)
        case (BatchNorm(sync="learner") as norm, Relu()):
            return NormAddRelu(norm, added=False)
        case (BatchNorm(sync="learner") as norm, Add((1.0, 1.0)), Relu()):
            return NormAddRelu(norm, added=True)
        case (Add((1.0, 1.0)), Relu()):
            return AddRelu()
        case (Expand(), Add((1.0, 1.0))):
            return ExpandAdd()
        case (Expand(), Multiply(2)):
            return ExpandMultiply()
    return None


def rewrite(graph: Graph, training: bool) -> Graph:
    graph = turned_together(heads_together(graph))
    return fuse(graph, [training_fusion if training else evaluation_fusion], longest=4)
