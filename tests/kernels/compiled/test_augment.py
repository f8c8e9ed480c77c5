"""Windows, shares, mixtures and targets: the compiled kernels' bits are NumPy's, and nothing else is written."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="numba is not installed: pip install mpibow[cpu]")

from mpibow import ops
from mpibow.graph.graph import FLOAT, Array
from mpibow.kernels.compiled.command import Command
from mpibow.kernels.compiled.table import OPERATORS
from mpibow.kernels.numpy import OPERATORS as NUMPY
from tests.kernels.cases import Bench, Case, poisoned

GUARD = 32  # numbers on either side of y
SIDES, COUNTS, PIXELS = st.integers(1, 40), st.integers(1, 6), st.sampled_from(["uint8", FLOAT])


@st.composite
def augments(draw: Any) -> Case:
    n, height, width = draw(COUNTS), draw(SIDES), draw(SIDES)
    crop = (draw(st.integers(1, height)), draw(st.integers(1, width)))
    op = ops.Augment(draw(st.integers(0, min(crop) - 1)), crop, draw(st.booleans()))
    shapes = ((n, draw(st.integers(1, 3)), height, width), (n, 4))
    return Case(op, shapes, (draw(PIXELS), "uint32"), 1 << 32)


@st.composite
def crops(draw: Any) -> Case:
    height, width = draw(SIDES), draw(SIDES)
    op = ops.CentreCrop((draw(st.integers(1, height)), draw(st.integers(1, width))))
    return Case(op, ((draw(COUNTS), draw(st.integers(1, 3)), height, width),), (draw(PIXELS),), 256)


@st.composite
def cutouts(draw: Any) -> Case:
    n, height, width = draw(COUNTS), draw(SIDES), draw(SIDES)
    shapes = ((n, draw(st.integers(1, 3)), height, width), (n, 4))
    return Case(ops.Cutout(draw(st.integers(1, 50))), shapes, (FLOAT, "uint32"), 1 << 32)


@st.composite
def jitters(draw: Any) -> Case:
    n, channels, height, width = draw(COUNTS), draw(st.integers(1, 4)), draw(SIDES), draw(SIDES)
    spreads = st.sampled_from([0.0, 0.1, 0.4, 1.0, 2.5])
    op = ops.Jitter(draw(spreads), draw(spreads), draw(spreads) if channels == 3 else 0.0, 255.0)
    return Case(op, ((n, channels, height, width), (n, 4)), ("uint8", "uint32"), 1 << 32)


ROWS = st.one_of(st.tuples(COUNTS, st.integers(1, 200)), st.tuples(COUNTS, SIDES, st.integers(1, 5)), st.tuples(COUNTS))
EXACT: dict[type, st.SearchStrategy[Case]] = {
    ops.Augment: augments(),
    ops.CentreCrop: crops(),
    ops.Cutout: cutouts(),
    ops.Jitter: jitters(),
    ops.Mix: ROWS.map(lambda shape: Case(ops.Mix(), (shape, shape[:1]))),
    ops.MixShares: st.builds(
        lambda alpha, n: Case(ops.MixShares(alpha), ((n, 4),), ("uint32",), 1 << 32),
        st.sampled_from([0.1, 0.2, 1.0, 3.0]),
        st.integers(1, 99),
    ),
    ops.OneHot: st.builds(
        lambda classes, n, dtype: Case(ops.OneHot(classes), ((n,),), (dtype,), classes + 4),
        st.integers(1, 70),
        st.integers(1, 9),
        st.sampled_from(["int32", "int64"]),
    ),
}


def both(case: Case, seed: int = 0) -> tuple[Bench, Bench]:
    return tuple(Bench(case, table[type(case.op)], "float32", seed) for table in (OPERATORS, NUMPY))  # type: ignore[return-value]


def guarded(bench: Bench, node: str) -> Array:
    """y of the kernel as the node `node`, and the numbers around y."""
    room = poisoned((prod(bench.shape) + 2 * GUARD,), bench.y.dtype.name)
    bench.y = room[GUARD:-GUARD].reshape(bench.shape)
    bench.kernel.forward(replace(bench.call(backward=False), name=node))()
    return room


@pytest.mark.parametrize("op", EXACT, ids=lambda op: op.kind)
@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1000), node=st.sampled_from(["node", "another"]))
def test_its_bits_are_numpys(op: type, data: st.DataObject, seed: int, node: str) -> None:
    mine, theirs = both(data.draw(EXACT[op]), seed)
    if op is ops.OneHot:
        for bench in (mine, theirs):
            bench.x[0][...] -= 2  # some are below every class, some above
    np.testing.assert_array_equal(guarded(mine, node).view(np.uint8), guarded(theirs, node).view(np.uint8))


@pytest.mark.parametrize(
    "op", [ops.Augment(2, (5, 4), True), ops.CentreCrop((3, 2)), ops.Jitter(0.4, 0.4)], ids=lambda op: op.kind
)
def test_pixels_of_another_type_are_numpys_task(op: Any) -> None:
    shapes = ((3, 2, 6, 5), (3, 4))[: 1 + (not isinstance(op, ops.CentreCrop))]
    mine, theirs = both(Case(op, shapes, ("int16", "uint32")[: len(shapes)], 1 << 15))
    assert not isinstance(mine.kernel.forward(mine.call(backward=False)), Command)
    np.testing.assert_array_equal(mine.forward(), theirs.forward())


def test_a_mixture_of_what_is_no_number_and_of_numbers_far_apart() -> None:
    mine, theirs = both(Case(ops.Mix(), ((3, 8), (3,))))
    for bench in (mine, theirs):
        bench.x[0][0] = [np.nan, np.inf, -np.inf, np.inf, 3e38, 1e-40, 1e30, -0.0]
        bench.x[0][1] = [1.0, 1.0, 1.0, np.inf, -3e38, 1e-42, 1.0, 0.0]
        bench.x[0][2] = [1.0, 2.0, 3.0, 4.0, 1e-30, 1e-45, 1e30, -0.0]
        bench.x[1][...] = [0.7, 0.5, 1.0]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(mine.forward(), theirs.forward())
