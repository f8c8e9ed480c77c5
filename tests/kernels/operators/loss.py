"""Loss: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, Looser, N
from tests.kernels.draw import (
    labels,
    rows,
    smoothings,
)


@st.composite
def losses(draw: st.DrawFn) -> Case:
    n, classes = draw(rows)
    ignore = draw(st.sampled_from([None, 0, -100, classes]))
    op = ops.SoftmaxCrossEntropy(draw(smoothings), ignore)
    return Case(op, ((n, classes), (n,)), (FLOAT, draw(labels)), classes + (ignore == classes))


def target(op, classes: int, given) -> Array | None:
    """The probabilities that a loss compares with, None for an ignored label."""
    if isinstance(op, ops.SoftmaxCrossEntropy):
        if given == op.ignore:
            return None
        given = np.eye(classes)[given]
    return (1 - op.smoothing) * np.asarray(given) + op.smoothing / classes


def cross_entropy(op, logits: Array, given: Array, w) -> Array:
    y = np.zeros(len(logits))
    for n, row in enumerate(logits):
        t = target(op, len(row), given[n])
        if t is not None:
            y[n] = -sum(t[c] * (row[c] - np.log(np.exp(row).sum())) for c in range(len(row)))
    return y


CHECKED = (
    Checked(
        op=ops.SoftmaxCrossEntropy,
        cases=[
            Case(ops.SoftmaxCrossEntropy(), ((6, 4), (6,)), (FLOAT, "int32")),
            Case(ops.SoftmaxCrossEntropy(0.1), ((6, 4), (6,)), (FLOAT, "int32"), id="smoothing"),
            Case(ops.SoftmaxCrossEntropy(0.0, 2), ((9, 4), (9,)), (FLOAT, "int32"), id="ignore"),
            Case(ops.SoftmaxCrossEntropy(0.2, 7), ((9, 7), (9,)), (FLOAT, "int64"), 8, id="smoothing, ignore no class"),
        ],
        large=[
            Case(ops.SoftmaxCrossEntropy(), ((N, 4), (N,)), (FLOAT, "int32")),
            Case(ops.SoftmaxCrossEntropy(0.1, 2), ((N, 4), (N,)), (FLOAT, "int32"), id="smoothing and ignore"),
        ],
        random=losses(),
        plain=cross_entropy,
        lengths=lambda op, shapes: (shapes[0][1], shapes[0][1], 1),
        looser=Looser(1, "the label's logit and probability are subtracted from what may be close"),
    ),
    Checked(
        op=ops.SoftCrossEntropy,
        cases=[
            Case(ops.SoftCrossEntropy(), ((5, 4), (5, 4))),
            Case(ops.SoftCrossEntropy(0.3), ((5, 4), (5, 4)), id="smoothing"),
        ],
        large=[Case(ops.SoftCrossEntropy(0.1), ((N, 4), (N, 4)))],
        random=st.builds(
            lambda smoothing, shape: Case(ops.SoftCrossEntropy(smoothing), (shape,) * 2), smoothings, rows
        ),
        plain=cross_entropy,
        lengths=lambda op, shapes: (shapes[0][1], shapes[0][1], 1),
        looser=Looser(6, "as sum, of targets times how far logits are below the largest, up to 6"),
    ),
)
