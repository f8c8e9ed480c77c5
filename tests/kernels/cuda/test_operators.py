"""mpibow's own CUDA kernels on the host, operator by operator, against NumPy's: in float64, and to the bit where they can.

What is run are the launches that a device gets. All of them run with threads and blocks in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph.formats import Reorder
from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Call, Kernel, Run, Shapes
from mpibow.graph.steps import Sum
from mpibow.kernels.cuda.kernels import KERNELS, Launch
from mpibow.kernels.cuda.own import OWN
from mpibow.kernels.numpy import OPERATORS as NUMPY
from mpibow.ops.fused import AddRelu
from tests.kernels.cases import CASES, INITIAL, Bench, Case, name
from tests.kernels.cuda.host import needs_compiler, prepared, run_all

pytestmark = needs_compiler
prepare = prepared(*sorted(set(KERNELS.values())))

CUDNN = (ops.BatchNorm, ops.Conv2d, ops.Dense)  # what cuDNN computes
VIEWS = (ops.Flatten,)
# Of max |reference|: float32 in other orders and with other functions; half a unit of the last place a few times over.
UNIT = {"float32": 3e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
WIDE_INPUTS = {ops.SoftCrossEntropy: (1,), ops.Mix: (1,), ops.MatrixFactorisation: (2,)}  # float32 in every precision
WIDE_OUTPUTS = (
    ops.Accuracy, ops.MatrixFactorisation, ops.MixShares, ops.OneHot, ops.SoftCrossEntropy, ops.SoftmaxCrossEntropy
)  # fmt: skip


def added(call: Call) -> Run:
    return lambda: np.copyto(call.y, np.maximum(call.x[0] + call.x[1], 0))


def added_back(call: Call) -> Run:
    def run() -> None:
        for dx in call.dx:
            np.copyto(dx, call.dy * (call.y > 0))

    return run


def reordered(call: Call) -> Run:
    return lambda: np.copyto(call.y, call.x[0])


def reordered_back(call: Call) -> Run:
    return lambda: np.copyto(call.dx[0], call.dy)


REFERENCE: dict[type, Kernel] = {
    **NUMPY,
    AddRelu: Kernel(added, added_back),
    Reorder: Kernel(reordered, reordered_back),
}


def on_host(op: type, backwards: bool) -> Kernel:
    def bind(launches: Sequence[Launch]) -> Run:
        return lambda: run_all(launches, backwards)

    return OWN[op].bound(bind)


def bench(case: Case, dtype: str, given: tuple[str, ...] | None, backwards: bool, training: bool = True) -> Bench:
    """Of the kernel on the host; weights, and what the module's tables say, are float32."""
    made = Bench(case, on_host(type(case.op), backwards), dtype, training=training, given=given)
    wide = WIDE_INPUTS.get(type(case.op), ())
    made.x = tuple(x.astype("float32") if i in wide else x for i, x in enumerate(made.x))
    if isinstance(case.op, WIDE_OUTPUTS):
        made.y, made.dy = made.y.astype("float32"), made.dy.astype("float32")
    made.w = {key: array.astype("float32") for key, array in made.w.items()}
    made.dw = {key: array.astype("float32") for key, array in made.dw.items()}
    return made


def widened(array: Array, dtype: str) -> Array:
    return array if array.dtype.kind in "iub" else array.astype(dtype)


def twin(fast: Bench, dtype: str, training: bool = True) -> Bench:
    """The reference with the same numbers."""
    slow = Bench(fast.case, REFERENCE[type(fast.case.op)], dtype, training=training)
    slow.x = tuple(widened(x, dtype) for x in fast.x)
    slow.w = {key: array.astype(dtype) for key, array in fast.w.items()}
    slow.dy = fast.dy.astype(dtype)
    return slow


def compare(case: Case, dtype: str, given: tuple[str, ...] | None, same: Callable[[Any, Any], None], twins: str) -> None:
    """Forward and backward, in both orders of threads; `same(got, expected)`."""
    trains = OWN[type(case.op)].backward is not None and case.op.differentiable is not None
    seen = []
    for backwards in (False, True):
        fast = bench(case, dtype, given, backwards)
        slow = twin(fast, twins)
        results = [(fast.forward(), slow.forward())]
        if trains:
            fast.hide_what_backward_may_not_read()
            fast.backward()
            slow.backward()
            results += [(mine, its) for mine, its in zip(fast.dx, slow.dx, strict=True) if its is not None]
            results += [(fast.dw[key], slow.dw[key]) for key in fast.dw]
        for got, expected in results:
            same(got, expected)
        seen.append([got for got, _ in results])
    for first, second in zip(*seen, strict=True):
        np.testing.assert_array_equal(first, second)


def close(dtype: str) -> Callable[[Any, Any], None]:
    def same(got: Any, expected: Any) -> None:
        bound = UNIT[dtype] * max(np.abs(np.nan_to_num(expected.astype(np.float64))).max(initial=0.0), 1e-30)
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=0, atol=bound)

    return same


def check(case: Case, dtype: str, given: tuple[str, ...] | None = None) -> None:
    compare(case, dtype, given, close(dtype), "float64")


MORE = [
    Case(AddRelu(), ((3, 4), (3, 4))),
    Case(Reorder("abcd", "acdb"), ((2, 3, 4, 5),)),
    Case(Sum(), ((2, 3),) * 9, (FLOAT,) * 9, id="nine"),
    Case(ops.Add((2.0, 1.0, -0.5, 3.0, 1.0, 0.25)), ((3, 5),) * 6, id="six with coefficients"),
    Case(ops.Maximum(5), ((3, 5),) * 5, id="five"),
    Case(ops.Normalise((0.5,), (2.0,)), ((3, 1, 5),), id="floats"),
]
MINE = [case for case in [*CASES, *MORE] if not isinstance(case.op, CUDNN + VIEWS)]


def test_every_operator_is_there() -> None:
    """Of NumPy's table, cuDNN computes some; of this table, all are checked."""
    assert set(NUMPY) - set(OWN) == set(CUDNN)
    assert {type(case.op) for case in MINE} == set(OWN)


@pytest.mark.parametrize("dtype", list(UNIT))
@pytest.mark.parametrize("case", MINE, ids=name)
def test_cases(case: Case, dtype: str) -> None:
    given = ("acdb" if len(case.shapes[0]) == 4 else "abcdef"[: len(case.shapes[0])],) * len(case.shapes)
    for layout in {None, given if not isinstance(case.op, Reorder) else None}:
        check(case, dtype, layout)
