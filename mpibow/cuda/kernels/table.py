"""The kernel set of a GPU: operator -> cuDNN's layer or mpibow's own kernels, in one table."""

from __future__ import annotations

from typing import Any

from mpibow.cuda.kernels.cudnn import Cudnn
from mpibow.cuda.kernels.launcher import Bind
from mpibow.cuda.kernels.layers import layers
from mpibow.cuda.kernels.operands import Precision
from mpibow.cuda.kernels.own import OWN
from mpibow.graph.kernel import KernelTable
from mpibow.graph.rewrite import Widths
from mpibow.ops import (
    Accuracy,
    BatchNorm,
    Conv2d,
    Dense,
    Jitter,
    MatrixFactorisation,
    Mix,
    MixShares,
    Normalise,
    OneHot,
    SoftCrossEntropy,
    SoftmaxCrossEntropy,
)
from mpibow.ops.wide import WideDense

# Float32 in every precision: losses, hits, targets and the arrays they are mixed of. cuDNN's layers never are; own
# kernels make their inputs from stored images of any type.
WIDTHS = Widths(
    wide=(Accuracy, MatrixFactorisation, MixShares, OneHot, SoftCrossEntropy, SoftmaxCrossEntropy),
    narrow=(BatchNorm, Conv2d, Dense, WideDense, Jitter, Normalise),
    leading=(Mix,),
)


def operators(bind: Bind, cudnn: Cudnn, precision: Precision) -> KernelTable:
    """Its kernels bind runs that take the stream they enqueue on."""

    runs: Any = bind
    return {**{op: kernel.bound(runs) for op, kernel in OWN.items()}, **layers(cudnn, precision)}
