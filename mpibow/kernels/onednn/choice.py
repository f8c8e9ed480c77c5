"""The choice between two kernels of an operator, by its settings and shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpibow.graph.kernel import Call, Formats, Kernel, Run, Shapes


def either(fits: Callable[[Any, Shapes], bool], one: Kernel, other: Kernel) -> Kernel:
    """The kernel that is `one` where it fits, else the `other`.

    Layouts are requested as if the output had that of the first input: `fits` finds it in `shapes.formats.y`.
    """

    def chosen(op: Any, shapes: Shapes) -> Kernel:
        return one if fits(op, shapes) else other

    def backward(call: Call) -> Run:
        half = chosen(call.op, call.shapes).backward
        assert half is not None
        return half(call)

    def formats(op: Any, shapes: Shapes, given: tuple[str, ...]) -> Formats:
        return chosen(op, replace(shapes, formats=Formats(given, given[0]))).formats(op, shapes, given)

    return Kernel(
        lambda call: chosen(call.op, call.shapes).forward(call),
        backward,
        lambda op, shapes: chosen(op, shapes).buffers(op, shapes),
        formats,
        lambda op, shapes: chosen(op, shapes).slow(op, shapes),
        inputs_alone=other.inputs_alone,
    )
