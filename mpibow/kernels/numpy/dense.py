"""Dense: three matrix products."""

from __future__ import annotations

import numpy as np

from mpibow.graph.kernel import Call, Run


def forward(call: Call) -> Run:
    x, y, weight, bias = call.x[0], call.y, call.w["weight"].T, call.w.get("bias")

    def run() -> None:
        np.matmul(x, weight, out=y)
        if bias is not None:
            np.add(y, bias, out=y)

    return run


def backward(call: Call) -> Run:
    x, dy, dx = call.x[0], call.dy, call.dx[0]
    weight, dweight, dbias = call.w["weight"], call.dw["weight"], call.dw.get("bias")

    def run() -> None:
        np.matmul(dy.T, x, out=dweight)
        if dbias is not None:
            np.sum(dy, axis=0, out=dbias)
        if dx is not None:
            np.matmul(dy, weight, out=dx)

    return run
