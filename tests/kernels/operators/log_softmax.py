"""The logarithm of softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpibow import ops
from mpibow.graph.graph import Array
from tests.kernels.cases import Case
from tests.kernels.checked import IMAGE, SUM, Back, Checked
from tests.kernels.operators.softmax import softmax, softmaxes


def back(op: Any, x: Array, w: Any, dy: Array) -> Back:
    return [dy - softmax(op, x, w) * dy.sum(op.axis, keepdims=True)], {}


CHECKED = (
    Checked(
        op=ops.LogSoftmax,
        cases=[Case(ops.LogSoftmax(1), ((5, 4),)), Case(ops.LogSoftmax(2), ((2, 3, 4, 2),), id="inner axis")],
        large=[Case(ops.LogSoftmax(1), (IMAGE,))],
        random=softmaxes().map(lambda case: Case(ops.LogSoftmax(case.op.axis), case.shapes)),
        plain=(lambda op, x, w: np.log(softmax(op, x, w)), back),
        torch=lambda op, torch, x: torch.log_softmax(x, op.axis),
        lengths=lambda op, shapes: (shapes[0][op.axis], shapes[0][op.axis], 1),
        looser=SUM,
        lacking=("cuda",),
    ),
)
