"""Reference kernels that copy: of operators whose output's elements are elements of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mpibow.graph.graph import Array
from mpibow.graph.kernel import Call, Kernel, Run


def copies(pairs: Iterable[tuple[Array | None, Array]]) -> Run:
    """target <- source of each pair (target, source) whose target is wanted."""
    wanted = [(target, source) for target, source in pairs if target is not None]

    def run() -> None:
        for target, source in wanted:
            np.copyto(target, source)

    return run


def parts(axis: int, whole: Array, sizes: Iterable[int]) -> list[Array]:
    """`whole` cut along `axis` into views of these sizes."""
    return np.split(whole, np.cumsum([*sizes])[:-1].tolist(), axis)


def scatter(rows: Array, index: Array, table: Array) -> None:
    """table <- 0, then table[index[n]] += rows[n]: one by one, as a row may be named twice (np.add.at allocates)."""
    table.fill(0)
    for n in range(len(rows)):
        table[index[n]] += rows[n]


def viewing(view: Callable[[Any, Array], Array]) -> Kernel:
    """The kernel of an operator whose output is the view `view(op, x)` of its input."""

    def forward(call: Call) -> Run:
        return copies([(call.y, view(call.op, call.x[0]))])

    def backward(call: Call) -> Run:
        dy, dx, part = call.dy, call.dx0, view(call.op, call.dx0)

        def run() -> None:
            if part.size < dx.size:
                dx.fill(0)
            np.copyto(part, dy)

        return run

    return Kernel(forward, backward)
