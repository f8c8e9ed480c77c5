"""Numbers as those of another type."""

import numpy as np

from mpibow import ops
from mpibow.graph import FLOAT
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N
from tests.kernels.draw import tensors

CHECKED = (
    Checked(
        op=ops.Cast,
        cases=[Case(ops.Cast(FLOAT), ((3, 4),), ("int32",)), Case(ops.Cast("int32"), ((3, 4),), id="to integers")],
        large=[Case(ops.Cast(FLOAT), ((N, 5),), ("uint8",))],
        random=tensors.map(lambda shape: Case(ops.Cast(FLOAT), (shape,), ("uint8",), 256)),
        plain=lambda op, x, w: x.astype(np.int32).astype(np.float64),
    ),
)
