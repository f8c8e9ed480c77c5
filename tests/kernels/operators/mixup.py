"""Mixup: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import Array
from mpibow.ops.mixup import larger_shares
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, Checked, N, block
from tests.kernels.draw import (
    WORD,
    labels,
    tensors,
)


def mix_shares(op: ops.MixShares, counter: Array, w) -> Array:
    return np.array([larger_shares(op.alpha)[block(one)[0] // 2**20] for one in counter.tolist()])


def mix(op: ops.Mix, x: Array, share: Array, w) -> Array:
    return np.array([share[n] * x[n] + (1 - share[n]) * x[(n + 1) % len(x)] for n in range(len(x))])


def one_hot(op: ops.OneHot, label: Array, w) -> Array:
    return np.array([[float(n == c) for c in range(op.classes)] for n in label.tolist()])


CHECKED = (
    Checked(
        op=ops.MixShares,
        cases=[
            Case(ops.MixShares(0.2), ((7, 4),), ("uint32",), 1 << 32),
            Case(ops.MixShares(1.0), ((1, 4),), ("uint32",), 1 << 32, id="evenly"),
        ],
        large=[Case(ops.MixShares(0.2), ((N, 4),), ("uint32",), 1 << 32)],
        random=st.builds(
            lambda alpha, n: Case(ops.MixShares(alpha), ((n, 4),), ("uint32",), WORD),
            st.sampled_from([0.1, 0.2, 1.0, 3.0]),
            st.integers(1, 99),
        ),
        plain=mix_shares,
    ),
    Checked(
        op=ops.Mix,
        cases=[Case(ops.Mix(), ((4, 2, 3), (4,))), Case(ops.Mix(), ((1, 3), (1,)), id="alone")],
        large=[Case(ops.Mix(), (IMAGE, (N,)))],
        random=tensors.map(lambda shape: Case(ops.Mix(), (shape, shape[:1]))),
        plain=mix,
    ),
    Checked(
        op=ops.OneHot,
        cases=[Case(ops.OneHot(3), ((6,),), ("int32",))],
        large=[Case(ops.OneHot(4), ((N,),), ("int32",))],
        random=st.builds(
            lambda classes, n, dtype: Case(ops.OneHot(classes), ((n,),), (dtype,), classes + 4),
            st.integers(1, 70),
            st.integers(1, 9),
            labels,
        ),
        plain=one_hot,
    ),
)
