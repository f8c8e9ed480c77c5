"""Operators: frozen records of tensor functions, the functions that add them to a graph, and their reference kernels.

A new operator is one module of this package, imported below. `mpibow.ops` and `mpibow` offer the names of its
`__all__`; its `KERNELS` compute it in NumPy, for every kernel set that has nothing faster. Its `MOVES` are of operators
that copy. Operators of one element (`pointwise.Pointwise`) have formulas: every set's kernels are made of these.
"""

import sys

from mpibow.graph import KernelTable
from mpibow.ops import moves, pointwise

from .activation import *
from .applied import *
from .arithmetic import *
from .attention import *
from .avg_pool import *
from .batch_norm import *
from .cast import *
from .choose import *
from .colour import *
from .combine import *
from .concat import *
from .conv import *
from .conv_transpose import *
from .counted import *
from .cross_entropy import *
from .dropout import *
from .elementary import *
from .embedding import *
from .gather import *
from .gelu import *
from .gru import *
from .image import *
from .initialisers import *
from .integers import *
from .leaves import *
from .local_response import *
from .losses import *
from .lstm import *
from .matmul import *
from .mixup import *
from .norms import *
from .own import *
from .permute import *
from .pool import *
from .reduce import *
from .reshape import *
from .rotary import *
from .slice import *
from .softmax import *
from .sort import *
from .upsample import *

FOUND = [
    module
    for name, module in sorted(sys.modules.items())
    if name.startswith(f"{__name__}.") and hasattr(module, "__all__")
]
PUBLIC = {name: getattr(module, name) for module in FOUND for name in module.__all__}

NAMES: tuple[str, ...] = tuple(sorted(PUBLIC))
POINTWISE = tuple(each for each in PUBLIC.values() if isinstance(each, type) and issubclass(each, pointwise.Pointwise))
MOVES: moves.MoveTable = {op: made for module in FOUND for op, made in getattr(module, "MOVES", {}).items()}
KERNELS: KernelTable = {
    **{op: kernel for module in FOUND for op, kernel in getattr(module, "KERNELS", {}).items()},
    **{op: pointwise.reference(op) for op in POINTWISE},
    **{op: moves.reference(*made) for op, made in MOVES.items()},
}
