"""A kernel's results beside NumPy's in float64 of the same numbers, and how far they may be apart."""

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from mpibow import ops
from mpibow.graph import Array, Kernel
from mpibow.ops.fused import (
    AddRelu,
    ConvNormAddRelu,
    ConvRelu,
    ExpandAdd,
    ExpandMultiply,
    HeadsAttention,
    NormAddRelu,
    TurnedMatmul,
)
from mpibow.ops.wide import WideLayerNorm
from tests.kernels.cases import Bench, Case, kind_of
from tests.kernels.checked import SUM
from tests.kernels.operators import CHECKED, LOOSER as OWN
from tests.kernels.reference import REFERENCE
from tests.kernels.shapes import given_in

UNIT = 1e-6  # of max |reference|, times the root of the reduction's length


LOOSER = {
    **OWN,
    **dict.fromkeys(("add+relu", "conv+norm+add+relu", "conv+relu", "norm+add+relu"), SUM),
    **dict.fromkeys(("expand+add", "expand+multiply", "heads+attention", "turned+matmul"), SUM),
    "wide_layer_norm": OWN["layer_norm"],
    "wide_local_response_norm": OWN["local_response_norm"],
    "wide_softmax": OWN["softmax"],
}


@dataclass(frozen=True)
class Result:
    """One array of an operator: what a kernel made, what NumPy did, how many terms its sums have."""

    name: str
    got: Array
    expected: Array
    length: float

    def off(self) -> float:
        return float(np.abs(self.got.astype(np.float64) - self.expected).max(initial=0.0))

    def close(self, kind: str, unit: float = UNIT) -> None:
        """Raises AssertionError where they are further apart than an operator of this `kind` may be."""
        assert self.got.shape == self.expected.shape
        np.testing.assert_array_equal(np.isnan(self.got), np.isnan(self.expected), err_msg=self.name)
        floor, _ = LOOSER.get(kind, (0.0, ""))
        bound = unit * sqrt(self.length) * max(float(np.abs(self.expected).max(initial=0.0)), floor)
        assert self.off() <= bound, f"{self.name} is off by {self.off():g}, bound {bound:g}"


def lengths(op, shapes: tuple[tuple[int, ...], ...]) -> tuple[float, float, float]:
    """Of the longest sums in y, in gradients of inputs and in those of weights; 1 where nothing is summed."""
    match op:
        case ConvRelu() | ConvNormAddRelu():
            return lengths(op.conv, shapes[:1])
        case NormAddRelu():
            return lengths(op.norm, shapes[:1])
        case AddRelu():
            return len(shapes), 1, 1
        case TurnedMatmul():
            return CHECKED[ops.Matmul].lengths(ops.Matmul(), op.straight(*shapes))
        case HeadsAttention():
            return CHECKED[ops.Attention].lengths(op.attention, op.apart(*shapes))
        case ExpandAdd() | ExpandMultiply():
            return 1, prod(shapes[1]) / prod(shapes[0]), 1
        case WideLayerNorm() if op.axes == len(shapes[0]) - 1:
            n, c, *rest = shapes[0]
            return CHECKED[ops.LayerNorm].lengths(op, ((n, c // op.replicas, *rest),))
    found = next((CHECKED[kind] for kind in type(op).__mro__ if kind in CHECKED), None)
    return found.lengths(op, shapes) if found else (1, 1, 1)


def twin(fast: Bench, dtype: str = "float64") -> Bench:
    """NumPy's kernel of the same operator with the same numbers."""
    kernel, asked = REFERENCE[kind_of(fast.case.op)], fast.shapes
    slow = Bench(fast.case, kernel, dtype, training=asked.training, wanted=asked.wanted)

    def same(array: Array) -> Array:
        return array.copy() if array.dtype.kind in "iub" else array.astype(dtype)

    slow.x, slow.dy = tuple(same(x) for x in fast.x), same(fast.dy)
    slow.w = {key: same(array) for key, array in fast.w.items()}
    slow.statistics = {key: same(array) for key, array in fast.statistics.items()}
    return slow


def results(fast: Bench, dtype: str = "float64") -> list[Result]:
    """Of forward and, in training, of backward: y, statistics, gradients of the inputs that want one and of weights."""
    op, slow = fast.case.op, twin(fast, dtype)
    if isinstance(op, ops.Accuracy | ops.Maximum):
        for mine, its in zip(fast.x, slow.x, strict=True):  # numbers that are equal
            mine[...] = its[...] = np.round(mine)
    n, n_dx, n_dw = lengths(op, fast.case.shapes)
    found = [Result("y", fast.forward(), slow.forward(), n)]
    found += [Result(key, array, slow.statistics[key], n) for key, array in fast.statistics.items()]
    if not fast.shapes.training or fast.kernel.backward is None or op.differentiable is None:
        return found
    if isinstance(op, AddRelu | ConvRelu | NormAddRelu):
        slow.y[...] = fast.y  # rounding puts a number above 0 or below: a gradient goes through, or does not
    fast.hide_what_backward_may_not_read()
    fast.backward()
    slow.backward()
    if fast.kernel.inputs_alone and fast.shapes.wanted:
        alike_alone(fast)
    for i, (mine, its) in enumerate(zip(fast.dx, slow.dx, strict=True)):
        if its is not None:
            found.append(Result(f"dx[{i}]", mine, its, n_dx))
    return [*found, *(Result(f"d {key}", fast.dw[key], array, n_dw) for key, array in slow.dw.items())]


def alike_alone(bench: Bench) -> None:
    """Raises AssertionError where gradients of inputs are others once those of weights are left out."""
    before = [None if dx is None else dx.copy() for dx in bench.dx]
    for dx in bench.dx:
        if dx is not None:
            dx.view(np.uint8).fill(0xFF)
    bench.backward(alone=True)
    for mine, its in zip(bench.dx, before, strict=True):
        np.testing.assert_array_equal(mine, its)


def check(fast: Bench, unit: float = UNIT) -> None:
    """Raises AssertionError where a result is further off than LOOSER and `unit` allow."""
    for result in results(fast):
        result.close(fast.case.op.kind, unit)


def compare(
    kernel: Kernel, case: Case, seed: int = 0, wanted: tuple[int, ...] | None = None, tag: str = "abcd"
) -> None:
    """In evaluation and in training, images coming in the layout `tag`."""
    for training in (False, True):
        if not case.op.is_view(training) and not (training and isinstance(case.op, ConvNormAddRelu)):
            check(Bench(case, kernel, "float32", seed, training, given_in(case, tag), wanted))
