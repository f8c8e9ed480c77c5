"""Operators: frozen records of tensor functions, the functions that add them to a graph, and their reference kernels.

A new operator is one module of this package, imported below. `mpibow.ops` and `mpibow` offer the names of its
`__all__`; its `KERNELS` compute it in NumPy, for every kernel set that has nothing faster. Its `MOVES` are of operators
that copy. Operators of one element (`pointwise.Pointwise`) have formulas: every set's kernels are made of these.
"""

import sys

from mpibow.graph.kernel import KernelTable
from mpibow.ops import moves, pointwise
from mpibow.ops.activation import *
from mpibow.ops.applied import *
from mpibow.ops.arithmetic import *
from mpibow.ops.attention import *
from mpibow.ops.avg_pool import *
from mpibow.ops.batch_norm import *
from mpibow.ops.cast import *
from mpibow.ops.choose import *
from mpibow.ops.colour import *
from mpibow.ops.combine import *
from mpibow.ops.concat import *
from mpibow.ops.conv import *
from mpibow.ops.conv_transpose import *
from mpibow.ops.counted import *
from mpibow.ops.cross_entropy import *
from mpibow.ops.dropout import *
from mpibow.ops.elementary import *
from mpibow.ops.embedding import *
from mpibow.ops.gather import *
from mpibow.ops.gelu import *
from mpibow.ops.gru import *
from mpibow.ops.image import *
from mpibow.ops.initialisers import *
from mpibow.ops.integers import *
from mpibow.ops.leaves import *
from mpibow.ops.local_response import *
from mpibow.ops.losses import *
from mpibow.ops.lstm import *
from mpibow.ops.matmul import *
from mpibow.ops.mixup import *
from mpibow.ops.norms import *
from mpibow.ops.own import *
from mpibow.ops.permute import *
from mpibow.ops.pool import *
from mpibow.ops.reduce import *
from mpibow.ops.reshape import *
from mpibow.ops.rotary import *
from mpibow.ops.slice import *
from mpibow.ops.softmax import *
from mpibow.ops.sort import *
from mpibow.ops.upsample import *

FOUND = [
    module
    for name, module in sorted(sys.modules.items())
    if name.startswith(f"{__name__}.") and hasattr(module, "__all__")
]
PUBLIC = {name: getattr(module, name) for module in FOUND for name in module.__all__}

NAMES: tuple[str, ...] = tuple(sorted(PUBLIC))
POINTWISE: tuple[type[pointwise.Pointwise], ...] = tuple(
    each for each in PUBLIC.values() if isinstance(each, type) and issubclass(each, pointwise.Pointwise)
)
MOVES: moves.MoveTable = {op: made for module in FOUND for op, made in getattr(module, "MOVES", {}).items()}
KERNELS: KernelTable = {
    **{op: kernel for module in FOUND for op, kernel in getattr(module, "KERNELS", {}).items()},
    **{op: pointwise.reference(op) for op in POINTWISE},
    **{op: moves.reference(*made) for op, made in MOVES.items()},
}
