"""Operators of one element: a loop around each formula, written as Python text that numba compiles.

Every element is computed as NumPy does, step by step. Only exp, log, log1p and tanh differ: they are numeric.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from mpibow.formulas.formula import Dialect, Formula
from mpibow.formulas.numba_source import HEAD, NUMBA, parts_of
from mpibow.graph.formats import physical
from mpibow.graph.kernel import Call, Formats, Kernel, Run, Shapes, canonical_formats
from mpibow.kernels.compiled.command import Native, command
from mpibow.kernels.compiled.generated import FUTURE, imported
from mpibow.ops import FORMULAS, KERNELS, Cast, Compare, Where, pointwise

OWN = ("exp", "log", "log1p", "tanh")  # of numeric.py
FAST = Dialect(
    number="_float({})",
    name="{}",
    templates={**NUMBA.templates, **{name: f"_{name}({{}})" for name in OWN}},
)
VIEWS = {  # by dtype, an array at an address
    "float32": "_floats", "float64": "_doubles", "int32": "_integers", "int64": "_words", "uint8": "_octets",
    "bool": "_octets",
}  # fmt: skip
IMPORTS = """
from numpy import float32 as _float, float64 as _double, int32 as _int32, int64 as _int64, uint8 as _uint8
from mpibow.kernels.compiled.command import Native as _Native, number as _number
from mpibow.kernels.compiled.command import doubles as _doubles, floats as _floats
from mpibow.kernels.compiled.command import integers as _integers, octets as _octets, words as _words
from mpibow.kernels.compiled.numeric import exp as _exp, log as _log, log1p as _log1p, tanh as _tanh
"""
NOT_FLOATS = (Cast, Compare, Where)  # operators with integer arrays, which are not reordered
_MADE: dict[tuple[int, Any], tuple[Formula, Native[...]]] = {}  # by a formula's identity, and the types


def text(formula: Formula, reads: Sequence[str], wanted: Sequence[int], writes: Sequence[str]) -> str:
    """The text of a loop over arrays of dtypes `reads`, for the results `wanted`, into arrays of dtypes `writes`.

    Its function `loop` takes (n, arrays read, arrays written, scalars).
    """
    places = [*(f"_x{i}" for i in range(len(reads))), *(f"_y{i}" for i in range(len(writes)))]
    views = [
        f"    {place} = {VIEWS[dtype]}(_a[{i}], _n)"
        for i, (place, dtype) in enumerate(zip(places, (*reads, *writes), strict=True), 1)
    ]
    integral = any(dtype != "float32" for dtype in reads)  # numbers that are compared with integers are not rounded
    scalar = "_number(_a[{}])" if integral else "_float(_number(_a[{}]))"
    loads = [
        f"        {name} = {'_x{}[_i]' if dtype in ('float32', 'float64') else '_double(_x{}[_i])'}".format(i)
        for i, (name, dtype) in enumerate(zip(formula.arrays, reads, strict=True))
    ]
    return "\n".join(
        [
            f'"""Written by mpibow: {formula.name}, element by element."""\n', FUTURE, HEAD.strip(), IMPORTS.strip(),
            parts_of(formula), "",
            "def loop(_arguments, _, _count, __):",
            "    _a = _words(_arguments, _count)", "    _n = _a[0]", *views,
            *(f"    {name} = {scalar.format(1 + len(places) + i)}" for i, name in enumerate(formula.scalars)),
            "    for _i in range(_n):", *loads,
            *(f"        {name} = {FAST.text(tree)}" for name, tree in formula.assignments),
            *(
                f"        _y{i}[_i] = {_stored(FAST.text(formula.results[result]), dtype)}"
                for i, (result, dtype) in enumerate(zip(wanted, writes, strict=True))
            ),
            "    return 0\n", "loop = _Native(loop, fast=False)\n",
        ]
    )  # fmt: skip


def _stored(value: str, dtype: str) -> str:
    match dtype:
        case "bool":
            return f"_uint8(1) if ({value}) != _float(0) else _uint8(0)"
        case "int32" | "int64":
            return f"_{dtype}({value})"
    return value


def loop(formula: Formula, reads: tuple[str, ...], wanted: tuple[int, ...], writes: tuple[str, ...]) -> Native[...]:
    key = (id(formula), (reads, wanted, writes))
    if key not in _MADE:
        module = imported("loop", formula.name, text(formula, reads, wanted, writes))
        _MADE[key] = formula, module.loop
    return _MADE[key][1]


def kernel(op: type) -> Kernel:
    """The kernel of an operator of FORMULAS."""
    formulas, reference = FORMULAS[op], KERNELS[op]

    def half(backward: bool) -> Any:
        def bind(call: Call) -> Run:
            one = pointwise.bound(formulas, call, backward)
            reads = tuple(array.dtype.name for array in one.arrays)
            writes = tuple(array.dtype.name for array in one.results)
            if not {*reads, *writes} <= {*VIEWS} or "uint8" in writes:
                slow = reference.backward if backward else reference.forward
                assert slow is not None
                return slow(call)
            native = loop(one.formula, reads, one.wanted, writes)
            return command(native, one.results[0].size, *one.arrays, *one.results, *one.scalars)

        return bind

    back = None if reference.backward is None else half(True)
    return Kernel(half(False), back, reference.buffers, canonical_formats if op in NOT_FLOATS else _formats)


def _formats(op: Any, shapes: Shapes, given: tuple[str, ...]) -> Formats:
    """The first input's layout, if there is no padding or the padding stays 0."""
    if prod(physical(given[0], shapes.y)) == prod(shapes.y) or keeps_zero(op):
        return Formats((given[0],) * len(given), given[0])
    return canonical_formats(op, shapes, given)


@cache
def keeps_zero(op: Any) -> bool:
    """Whether the output and the gradients of zeros are 0."""
    found = FORMULAS[type(op)](op)
    for used in (found.half(False), *([] if found.gradient is None else [found.half(True)])):
        zeros = [np.zeros(1, np.float32)] * len(used.arrays)
        if any(result.any() for result in used(*zeros, **{name: float(getattr(op, name)) for name in used.scalars})):
            return False
    return True
