"""Accuracy: what its tests take."""

import numpy as np
from hypothesis import strategies as st

from mpibow import ops
from mpibow.graph import FLOAT, Array
from tests.kernels.cases import Case
from tests.kernels.checked import Checked, N
from tests.kernels.draw import (
    labels,
    rows,
)


@st.composite
def accuracies(draw: st.DrawFn) -> Case:
    n, classes = draw(rows)
    op = ops.Accuracy(draw(st.integers(1, classes)))
    return Case(op, ((n, classes), (n,)), (FLOAT, draw(labels)), classes + 1)  # one more is no class


def accuracy(op: ops.Accuracy, logits: Array, label: Array, w) -> Array:
    best = [sorted(range(len(row)), key=lambda c: -row[c])[: op.k] for row in logits]  # stable: the first of equals
    return np.array([float(n in classes) for n, classes in zip(label.tolist(), best, strict=True)])


CHECKED = (
    Checked(
        op=ops.Accuracy,
        cases=[
            Case(ops.Accuracy(), ((6, 4), (6,)), (FLOAT, "int32")),
            Case(ops.Accuracy(3), ((12, 6), (12,)), (FLOAT, "int32"), 6, id="top 3"),
        ],
        large=[
            Case(ops.Accuracy(), ((N, 4), (N,)), (FLOAT, "int32")),
            Case(ops.Accuracy(3), ((N, 4), (N,)), (FLOAT, "int32"), id="top 3"),
        ],
        random=accuracies(),
        plain=accuracy,
    ),
)
