"""Dropout: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from mpibow.ops.philox import stream
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N
from tests.kernels.draw import (
    WORD,
    tensors,
)
from tests.ops.test_philox import plain as philox


def mask(op: ops.Dropout, counter: Array, shape: tuple[int, ...], node: str = "node") -> Array:
    """Element e of a sample takes word e % 4 of Philox: counter (e // 4, sample low, high, epoch), key (seed, node)."""
    kept = np.zeros(shape).reshape(shape[0], -1)
    for n, (seed, epoch, low, high) in enumerate(counter.tolist()):
        for e in range(kept.shape[1]):
            word = philox((e // 4, low, high, epoch), (seed, stream(node)))[e % 4]
            kept[n, e] = word >= op.rate * 2**32
    return kept.reshape(shape) / (1 - op.rate)


CHECKED = (
    Checked(
        op=ops.Dropout,
        cases=[
            Case(ops.Dropout(0.3), ((3, 9), (3, 4)), (FLOAT, "uint32"), 1 << 32),
            Case(ops.Dropout(0.5), ((2, 2, 3, 3), (2, 4)), (FLOAT, "uint32"), 1 << 32, id="image"),
        ],
        large=[Case(ops.Dropout(0.5), ((N, 9), (N, 4)), (FLOAT, "uint32"), 9)],
        random=st.builds(
            lambda rate, shape: Case(ops.Dropout(rate), (shape, (shape[0], 4)), (FLOAT, "uint32"), WORD),
            st.sampled_from([0.1, 0.5, 0.999]),
            tensors,
        ),
        plain=lambda op, x, counter, w: x * mask(op, counter, x.shape),
    ),
)
