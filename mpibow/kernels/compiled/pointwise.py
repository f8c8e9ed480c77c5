"""Operators of one element: a loop around each formula, written as Python text that numba compiles.

Every element is computed as NumPy does, step by step. Only the functions in OWN differ.
"""

from collections.abc import Sequence
from functools import cache
from math import prod

import numpy as np

from mpibow.formulas import Dialect, Formula
from mpibow.formulas.numba_source import NUMBA, head
from mpibow.graph import Binding, Call, Formats, Kernel, Run, Shapes, Tags, as_given, canonical_formats
from mpibow.graph.formats import physical
from mpibow.ops import KERNELS as REFERENCE, POINTWISE, Cast, Compare, Where, pointwise

from .generated import FUTURE, imported
from .native import Native

OWN = ("exp", "expm1", "log", "log1p", "tanh")  # of numeric.py
FAST = Dialect(number="_float({})", templates={**NUMBA.templates, **{name: f"_{name}({{}})" for name in OWN}})
TYPES = {  # of kernels' arrays, by dtype
    "float32": "_Floats",
    "float64": "_Doubles",
    "int32": "_Integers",
    "int64": "_Words",
    "uint8": "_Octets",
    "bool": "_Octets",
}
IMPORTS = """
from numpy import float32 as _float, float64 as _double, int32 as _int32, int64 as _int64, uint8 as _uint8
from mpibow.kernels.compiled.native import Doubles as _Doubles, Floats as _Floats, Integers as _Integers
from mpibow.kernels.compiled.native import Octets as _Octets, Single as _Single, Words as _Words
from mpibow.kernels.compiled.native import Native as _Native
from mpibow.kernels.compiled.numeric import exp as _exp, expm1 as _expm1, log as _log, log1p as _log1p, tanh as _tanh
"""
NOT_FLOATS = (Cast, Compare, Where)  # operators with integer arrays, which are not reordered


def text(formula: Formula, reads: Sequence[str], wanted: Sequence[int], writes: Sequence[str]) -> str:
    """The text of a loop over arrays of dtypes `reads`, for the results `wanted`, into arrays of dtypes `writes`.

    Its kernel `loop` takes the arrays read, the arrays written, and the scalars, by their names.
    """
    arrays = dict(zip(names_of(reads, writes), (*reads, *writes), strict=True))
    integral = any(dtype != "float32" for dtype in reads)  # numbers that are compared with integers are not rounded
    parameters = [f"{name}: {TYPES[dtype]}" for name, dtype in arrays.items()]
    parameters += [f"{name}: {'float' if integral else '_Single'}" for name in formula.scalars]
    loads = [
        f"        {name} = {'_x{}[_i]' if dtype in ('float32', 'float64', 'int64') else '_double(_x{}[_i])'}".format(i)
        for i, (name, dtype) in enumerate(zip(formula.arrays, reads, strict=True))
    ]
    return "\n".join(
        [
            f'"""Written by mpibow: {formula.name}, element by element."""\n',
            FUTURE,
            head(formula),
            IMPORTS.strip(),
            "",
            f"def loop({', '.join(parameters)}) -> None:",
            "    for _i in range(len(_y0)):",
            *loads,
            *(f"        {name} = {FAST.text(tree)}" for name, tree in formula.assignments),
            *(
                f"        _y{i}[_i] = {_stored(FAST.text(formula.results[result]), dtype)}"
                for i, (result, dtype) in enumerate(zip(wanted, writes, strict=True))
            ),
            "\n\nloop = _Native(loop, fast=False)\n",
        ]
    )


def names_of(reads: Sequence[str], writes: Sequence[str]) -> list[str]:
    return [*(f"_x{i}" for i in range(len(reads))), *(f"_y{i}" for i in range(len(writes)))]


def _stored(value: str, dtype: str) -> str:
    match dtype:
        case "bool":
            return f"_uint8(1) if ({value}) != _float(0) else _uint8(0)"
        case "int32" | "int64":
            return f"_{dtype}({value})"
    return value


@cache
def loop(formula: Formula, reads: tuple[str, ...], wanted: tuple[int, ...], writes: tuple[str, ...]) -> Native[...]:
    kernel: Native[...] = imported("loop", formula.name, text(formula, reads, wanted, writes)).loop
    return kernel


def kernel(op: type) -> Kernel:
    """The kernel of an operator of POINTWISE."""
    reference = REFERENCE[op]

    def half(backward: bool) -> Binding:
        def bind(call: Call) -> Run:
            one = pointwise.bound(call, backward)
            reads = tuple(array.dtype.name for array in one.arrays)
            writes = tuple(array.dtype.name for array in one.results)
            if not {*reads, *writes} <= {*TYPES} or "uint8" in writes:
                slow = reference.backward if backward else reference.forward
                assert slow is not None
                return slow(call)
            native = loop(one.formula, reads, one.wanted, writes)
            names = [*names_of(reads, writes), *one.formula.scalars]
            return native.command(**dict(zip(names, (*one.arrays, *one.results, *one.scalars), strict=True)))

        return bind

    back = None if reference.backward is None else half(True)
    return Kernel(half(False), back, reference.buffers, canonical_formats if op in NOT_FLOATS else _formats)


def _formats(op: pointwise.Pointwise, shapes: Shapes, given: Tags) -> Formats:
    """The first input's layout, if there is no padding or the padding stays 0."""
    if prod(physical(given[0], shapes.y)) == prod(shapes.y) or keeps_zero(op):
        return as_given(op, shapes, given)
    return canonical_formats(op, shapes, given)


@cache
def keeps_zero(op: pointwise.Pointwise) -> bool:
    """Whether the output and the gradients of zeros are 0."""
    for used in map(op.half, (False,) if op.differentiable is None else (False, True)):
        zeros = [np.zeros(1, np.float32)] * len(used.arrays)
        if any(result.any() for result in used(*zeros, **{name: float(getattr(op, name)) for name in used.scalars})):
            return False
    return True


KERNELS = {op: kernel(op) for op in POINTWISE}
