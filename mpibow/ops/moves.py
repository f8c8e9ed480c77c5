"""Operators that only move numbers: a kernel is pairs of views of one shape, a target and the source copied into it."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from mpibow.graph import Array, Binding, Call, Kernel, Run
from mpibow.graph.formats import parse

Pairs = list[tuple[Array, Array]]
Moves = Callable[[Call], Pairs]
MoveTable = Mapping[type, tuple[Moves, Moves | None]]  # forward and backward


def reference(forward: Moves, backward: Moves | None) -> Kernel:
    """NumPy's kernel of an operator with these moves."""
    return Kernel(_half(forward), None if backward is None else _half(backward))


def _half(moves: Moves) -> Binding:
    def bind(call: Call) -> Run:
        pairs = moves(call)

        def run() -> None:
            for target, source in pairs:
                np.copyto(target, source)

        return run

    return bind


def axis_in_memory(call: Call, axis: int) -> int:
    """The axis of the call's arrays, in their layout, that holds the tensor's `axis`: all of it, or its blocks."""
    return parse(call.shapes.formats.y)[0].index(axis)


def filled(target: Array, value: npt.ArrayLike) -> tuple[Array, Array]:
    """The move that repeats numbers all over `target`."""
    return target, np.broadcast_to(np.asarray(value, target.dtype), target.shape)
