"""A kernel's results beside NumPy's in float64 of the same numbers, and how far they may be apart."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from mpibow import ops
from mpibow.graph.graph import Array
from mpibow.graph.kernel import Kernel
from mpibow.graph.steps import Sum
from mpibow.ops.fused import AddRelu, ConvNormAddRelu, ConvRelu, NormAddRelu
from mpibow.ops.wide import WideLayerNorm
from tests.kernels.cases import Bench, Case, kind_of
from tests.kernels.reference import REFERENCE
from tests.kernels.shapes import given_in

UNIT = 1e-6  # of max |reference|, times the root of the reduction's length


class Looser(NamedTuple):
    """The bound is of `floor` where max |reference| is below that, for this reason."""

    floor: float
    reason: str


# Numbers are standard normal: few of some thousand are above 4, whose rounding (2^-24 of it, 2.4e-7) is below UNIT.
# So a floor of 1 is for a result that is small beside the terms it is left of, when there are so few results that the
# largest of them is small.
_SUM = Looser(1, "terms, normal numbers or products of two, may all but cancel: they are rounded, not their sum")
LOOSER: dict[str, Looser] = {
    "add": Looser(3, "as sum, with coefficients up to 3"),
    "gelu": Looser(1, "its slope P(x) + x P'(x) goes through 0, and 1 + erf or 1 + tanh comes near it"),
    "layer_norm": Looser(10, "as sum, divided by a deviation of sqrt(epsilon) = 0.1 or more"),
    "matrix_factorisation": Looser(4, "as sum; backward's terms are twice products of three or four normal numbers"),
    "normalise": Looser(12, "pixels and means up to 120 are subtracted: 2^-24 of these is 7e-6"),
    "sigmoid": Looser(1, "backward has 1 - y, of a y that is rounded"),
    "soft_cross_entropy": Looser(6, "as sum, of targets times how far logits are below the largest, up to 6"),
    "softmax_cross_entropy": Looser(1, "the label's logit and probability are subtracted from what may be close"),
    "tanh": Looser(1, "backward has 1 - y^2, of a y that is rounded"),
    **dict.fromkeys(
        (
            "adaptive_avg_pool", "add+relu", "avg_pool", "batch_norm", "conv", "conv+norm+add+relu", "conv+relu",
            "dense", "global_avg_pool", "local_response_norm", "max_pool", "norm+add+relu",
            "softmax", "sum", "wide_local_response_norm", "wide_softmax",
        ),
        _SUM,
    ),
}  # fmt: skip
LOOSER["wide_layer_norm"] = LOOSER["layer_norm"]


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


def lengths(op: Any, shapes: tuple[tuple[int, ...], ...]) -> tuple[float, float, float]:
    """Of the longest sums in y, in gradients of inputs and in those of weights; 1 where nothing is summed."""
    x = shapes[0]
    match op:
        case ConvRelu() | ConvNormAddRelu():
            return lengths(op.conv, shapes)
        case ops.Conv2d():
            area, y = prod(op.kernel), op.infer(x)
            return x[1] // op.groups * area, op.channels // op.groups * area, y[0] * y[2] * y[3]
        case ops.Dense():
            return x[1], op.units, x[0]
        case ops.BatchNorm() | NormAddRelu():
            return (prod(x) // x[1],) * 3
        case ops.LayerNorm():
            features = prod(x[-op.axes :])
            if isinstance(op, WideLayerNorm) and op.axes == len(x) - 1:
                features //= op.replicas
            return features, features, prod(x) // features
        case ops.MaxPool2d() | ops.AvgPool2d():
            return prod(op.kernel), prod(op.kernel), 1
        case ops.AdaptiveAvgPool2d():
            sees = [ceil(extent / size) + 1 for extent, size in zip(x[2:], op.size, strict=True)]
            seen = [ceil(size / extent) + 1 for extent, size in zip(x[2:], op.size, strict=True)]
            return prod(sees), prod(seen), 1
        case ops.GlobalAvgPool2d():
            return prod(x[2:]), 1, 1
        case ops.LocalResponseNorm():
            return op.size, op.size, 1
        case ops.Softmax():
            return x[op.axis], x[op.axis], 1
        case ops.SoftmaxCrossEntropy() | ops.SoftCrossEntropy():
            return x[1], x[1], 1
        case ops.MatrixFactorisation():
            return op.factors + 1, 1, x[0] * (op.factors + 1)  # of each of the batch, its row times its error
        case ops.Add() | Sum() | AddRelu():
            return len(shapes), 1, 1
    return 1, 1, 1


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
    for i, (mine, its) in enumerate(zip(fast.dx, slow.dx, strict=True)):
        if its is not None:
            assert mine is not None
            found.append(Result(f"dx[{i}]", mine, its, n_dx))
    return [*found, *(Result(f"d {key}", fast.dw[key], array, n_dw) for key, array in slow.dw.items())]


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
