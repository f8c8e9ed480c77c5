"""Launches of operators of one element: kernels that are made of their formulas."""

import numpy as np

from mpibow.cuda.kernels import formulas as cuda_source
from mpibow.errors import ShapeError
from mpibow.graph import Array, Call
from mpibow.ops.pointwise import Pointwise, bound

from .kernels import CONDITIONS, KERNELS, TYPES, Launch, Launches, instance, lanes, turns

INPUTS, RESULTS, SCALARS = 4, 2, 2  # at most


def forward(call: Call) -> Launches:
    return [_launch(call, backward=False)]


def backward(call: Call) -> Launches:
    return [_launch(call, backward=True)]


def header(op: Pointwise) -> str:
    """The text of element.cuh for an operator."""
    return cuda_source.element(op.half(False), None if op.differentiable is None else op.half(True))


def _launch(call: Call, backward: bool) -> Launch:
    one = bound(call, backward)
    y = one.results[0]
    results: list[Array | None] = [None] * RESULTS
    for n, result in zip(one.wanted, one.results, strict=True):
        results[n] = result
    arrays = [*one.arrays, *[None] * (INPUTS - len(one.arrays))]
    scalars = [*one.scalars, *[0.0] * (SCALARS - len(one.scalars))]
    kernel = _kernel(call, [array.dtype.name for array in one.arrays], y.dtype.name, backward)
    at_once = lanes(*(array.dtype for array in (*one.arrays, *one.results)))
    arguments = (*arrays, *results, *scalars, np.int64(y.size))
    return Launch(kernel, turns(y.size, at_once), arguments, formula=header(call.op))


def _kernel(call: Call, reads: list[str], writes: str, backward: bool) -> str:
    """The kernel's name. Raises ShapeError where no kernel is made for the types."""
    first, others = reads[0], {*reads[1:]}
    if first in TYPES and {*reads, writes} == {first}:
        return instance("gradient" if backward else "value", TYPES[first])
    if first in CONDITIONS and writes in TYPES and others <= {writes}:
        return instance("chosen_back" if backward else "chosen", CONDITIONS[first], TYPES[writes])
    made = instance("counted", TYPES.get(first, ""), CONDITIONS.get(writes, ""))
    if others <= {first} and made in KERNELS and not (call.op.kind == "cast" and writes == "bool"):
        return made
    types = " and ".join(dict.fromkeys(reads))
    raise ShapeError(
        f"{call.name}: device cuda has no kernel for {call.op.kind} of {types} to {writes}: set device=onednn, or "
        "device=numpy"
    )
