"""Operators of one element: formulas of the output and of the gradients, which every machine's kernels are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import getfullargspec
from math import prod
from typing import ClassVar, Protocol

import numpy as np

from mpibow.formulas import Apply, Formula, Name, formula
from mpibow.formulas.functions import Element as Element
from mpibow.formulas.passes import Program, bind, plain, program
from mpibow.graph import FLOAT, Arrays, ArraysByName, Binding, Buffers, Call, Kernel, Op, Run, Shapes, Specs, Tensor
from mpibow.graph.infix import named

CHUNK = 4096  # elements: parts stay in a cache


class Pointwise(Op):
    """An operator of one element of each input. `value` and `gradient` are formulas, written as static methods.

    A formula's parameters are elements of arrays by name: `x`, or `x0`, `x1` ... of several inputs; in gradients also
    the output `y` and its gradient `dy`. Parameters behind the `*` are read off the operator: `slope` is op.slope.
    Gradients are of the inputs that have one, in their order; an operator that has none is not `differentiable`.
    """

    value: ClassVar[Callable[..., Element]]
    gradient: ClassVar[Callable[..., Element] | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.gradient is not None:
            cls.reads = "".join(sorted({name[0] for name in getfullargspec(cls.gradient).args if name != "dy"}))

    def half(self, backward: bool) -> Formula:
        """The formula of the output, or of the gradients."""
        function = self.gradient if backward else self.value
        assert function is not None
        return formula(function)


class Elementary(Pointwise):
    """y = the function of formulas that the operator's kind names, of x."""

    def half(self, backward: bool) -> Formula:
        return super().half(True) if backward else Formula(self.kind, ("x",), (), (), (Apply(self.kind, (Name("x"),)),))


class OfOne(Protocol):
    """A function of one tensor."""

    def __call__(self, x: Tensor, *, name: str | None = None) -> Tensor: ...


def of_one(op: Op, text: str) -> OfOne:
    """The function that adds `op`, which has no settings, to a graph; it has the operator's name."""

    def function(x: Tensor, *, name: str | None = None) -> Tensor:
        return op(x, name=name)

    function.__doc__ = text
    return named(function, op.kind)


@dataclass(frozen=True)
class Bound:
    """A formula with a call's arrays, in its own order: its inputs, its scalars, and the targets of its results."""

    formula: Formula
    arrays: Arrays
    scalars: tuple[float, ...]
    wanted: tuple[int, ...]
    results: Arrays


def bound(call: Call, backward: bool) -> Bound:
    op = call.op
    used = call.op.half(backward)
    named = {**call.arrays, "x0": call.x0}
    scalars = tuple(float(getattr(op, name)) for name in used.scalars)
    arrays = tuple(array for name in used.arrays if (array := named[name]) is not None)
    if not backward:
        return Bound(used, arrays, scalars, (0,), (call.y,))
    wanted = tuple(n for n, i in enumerate(op.differentiable) if call.dx[i] is not None)
    results = tuple(dx for i in op.differentiable if (dx := call.dx[i]) is not None)
    return Bound(used, arrays, scalars, wanted, results)


# The reference kernels: a chunk at a time.


_program = cache(program)


def _chunk(planned: Program, size: int) -> int:
    """One pass needs no parts, so it takes all at once."""
    return min(CHUNK, size) if planned.parts or planned.masks else size


def _scratch(used: Formula, wanted: tuple[int, ...], size: int) -> Specs:
    planned = _program(used, wanted)
    chunk = _chunk(planned, size)
    found = {"parts": (planned.parts, FLOAT), "masks": (planned.masks, "bool")}
    return {key: ((len(names), chunk), dtype) for key, (names, dtype) in found.items() if names}


def _buffers(op: Pointwise, shapes: Shapes) -> Buffers:
    size = prod(shapes.y)
    backward = Specs()
    if op.differentiable is not None and shapes.wanted:
        wanted = tuple(n for n, i in enumerate(op.differentiable) if i in shapes.wanted)
        backward = _scratch(op.half(True), wanted, size)
    return Buffers(forward=_scratch(op.half(False), (0,), size), backward=backward)


def reference(op: type[Pointwise]) -> Kernel:
    """NumPy's kernel of the operator, a class."""

    def half(backward: bool) -> Binding:
        return lambda call: _run(bound(call, backward), call.scratch)

    return Kernel(half(False), None if op.differentiable is None else half(True), _buffers)


def _run(one: Bound, scratch: ArraysByName) -> Run:
    planned = _program(one.formula, one.wanted)
    size = one.results[0].size
    chunk = _chunk(planned, size)
    calls = []
    arrays = dict(zip(one.formula.arrays, one.arrays, strict=True))
    arrays |= {f"_y{i}": result for i, result in enumerate(one.results)}
    scalars = dict(zip(one.formula.scalars, map(plain, one.scalars), strict=True))
    own = dict(
        zip((*planned.parts, *planned.masks), (*scratch.get("parts", ()), *scratch.get("masks", ())), strict=True)
    )
    for start in range(0, size, chunk):
        length = min(chunk, size - start)
        here = {name: array.reshape(-1)[start : start + length] for name, array in arrays.items()}
        calls += bind(planned, {**here, **scalars, **{name: row[:length] for name, row in own.items()}})

    def run() -> None:
        with np.errstate(all="ignore"):  # both values of a `where` are computed
            for call in calls:
                call()

    return run
