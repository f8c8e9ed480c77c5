"""Launches that no operator makes by itself: other types, sums of columns, and what several replicas do at once."""

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpibow import ops
from mpibow.cuda.kernels import elementwise, norm
from mpibow.cuda.kernels.table import LAUNCHED
from mpibow.graph.graph import FLOAT, Array
from mpibow.graph.kernel import Call
from tests.cuda.kernels.host import needs_compiler, prepared, run_all
from tests.cuda.kernels.test_operators import on_host
from tests.kernels.cases import INITIAL, Bench, Case

pytestmark = needs_compiler
prepare = prepared("elementwise.cu", "image.cu", "norm.cu", "factorise.cu")

DTYPES = ["float32", "float16", "bfloat16"]
NARROW = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("dtype", list(NARROW))
def test_every_narrow_number_becomes_the_float32_that_it_is(dtype: str):
    x = np.arange(1 << 16, dtype=np.uint16).view(NARROW[dtype])
    y = np.zeros(x.size, np.float32)
    run_all(elementwise.cast(x, y))
    np.testing.assert_array_equal(y, x.astype(np.float32))


@pytest.mark.parametrize("dtype", list(NARROW))
def test_float32_is_rounded_to_the_nearest_and_to_even_of_two(dtype: str):
    exact = np.arange(1 << 16, dtype=np.uint16).view(NARROW[dtype]).astype(np.float32)
    exact = np.sort(exact[np.isfinite(exact)])
    halfway = ((exact[1:].astype(np.float64) + exact[:-1]) / 2).astype(np.float32)
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 14, np.uint32).view(np.float32)
    ends = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    x = np.concatenate([halfway, np.nextafter(halfway, np.float32(np.inf)), bits, ends])
    y = np.zeros(x.size, NARROW[dtype])
    run_all(elementwise.cast(x, y))
    with np.errstate(over="ignore"):
        expected = x.astype(NARROW[dtype])
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_a_cast_scales(source: str, target: str):
    x, y = np.arange(-9, 10).astype(source), np.zeros(19, target)
    run_all(elementwise.cast(x, y))
    assert y.tolist() == list(range(-9, 10))
    run_all(elementwise.cast(x, y, np.full(1, 0.25, np.float32)))
    assert y.tolist() == [i / 4 for i in range(-9, 10)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill(dtype: str):
    y = np.zeros(21, dtype)
    run_all(elementwise.fill(y, 0.5))
    assert y.tolist() == [0.5] * 21
    run_all(elementwise.fill(y, 0.5, np.full(1, 64, np.float32)))
    assert y.tolist() == [32.0] * 21


@given(st.integers(1, 3), st.one_of(st.integers(1, 70), st.just(5000)), st.integers(1, 70), st.sampled_from(DTYPES))
@settings(max_examples=20)
def test_column_sums(replicas: int, rows: int, columns: int, dtype: str):
    x = np.random.default_rng(0).standard_normal((replicas, rows, columns)).astype(dtype)
    parts = np.full((replicas, norm.parts_of(rows), columns), np.nan, np.float32)
    whole = np.full((replicas, columns + 5), np.nan, np.float32)
    results = []
    for backwards in (False, True):
        run_all(norm.column_sums(x, whole[:, :columns], parts if parts.shape[1] > 1 else None), backwards)
        results.append(whole.copy())
    expected = x.astype(np.float64).sum(axis=1)
    np.testing.assert_allclose(results[0][:, :columns], expected, rtol=0, atol=1e-6 * rows)
    np.testing.assert_array_equal(*results)
    assert np.isnan(whole[:, columns:]).all()


# Several replicas: their samples lie one after the other, their weights in rows of a flat array.


def strided(weights: list[Mapping[str, Array]]) -> dict[str, Array]:
    """The replicas' weights (replicas, ...) by name: parts of the rows of one flat array, NaN between them."""
    names, offset, flat = weights[0], 4, np.full((len(weights), 400), np.nan, np.float32)
    views = {}
    for name, first in names.items():
        part = flat[:, offset : offset + first.size]
        part[:] = [w[name].reshape(-1) for w in weights]
        strides = (flat.strides[0], *first.strides)
        views[name] = np.lib.stride_tricks.as_strided(part, (len(weights), *first.shape), strides, writeable=True)
        offset += -(-first.size // 4) * 4 + 4
    return views


def together(singles: list[Bench], calls: list[Call]) -> Call:
    """The call of all replicas at once, of the calls of each one."""
    shapes = calls[0].shapes
    n = len(singles) * shapes.y[0]
    whole = replace(shapes, x=tuple((n, *x[1:]) for x in shapes.x), y=(n, *shapes.y[1:]))
    joined = {name: np.concatenate([getattr(call, name) for call in calls]) for name in ("y", "dy")}
    keys = {name: getattr(calls[0], name).keys() for name in ("saved", "scratch")}
    return Call(
        "node", calls[0].op, tuple(np.concatenate(x) for x in zip(*[call.x for call in calls], strict=True)),
        w=strided([call.w for call in calls]),
        dw=strided([call.dw for call in calls]),
        saved={key: np.concatenate([call.saved[key] for call in calls]) for key in keys["saved"]},
        scratch={key: np.concatenate([call.scratch[key] for call in calls]) for key in keys["scratch"]},
        dx=tuple(None if dx is None else np.full((n, *dx.shape[1:]), np.nan, np.float32) for dx in calls[0].dx),
        shapes=whole, **joined,
    )  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        Case(ops.LayerNorm(1, 1e-5), ((5, 40),)),
        Case(ops.LayerNorm(2, 1e-5), ((3, 4, 6),)),
        Case(ops.MatrixFactorisation(4, 5, 3, INITIAL), ((7,), (7,), (7,)), ("int32", "int64", FLOAT)),
    ],
    ids=["layer_norm", "layer_norm over two axes", "matrix_factorisation"],
)
def test_replicas_have_weights_of_their_own(case: Case):
    """Three at once give what each gives alone, to the bit."""
    singles = [Bench(case, on_host(type(case.op), False), "float32", seed) for seed in range(3)]
    for single in singles:
        single.forward()
        single.backward()
    own = LAUNCHED[type(case.op)]
    call = together(singles, [single.call(backward=False) for single in singles])
    y = np.full_like(call.y, np.nan)
    run_all(own.forward(replace(call, y=y)))
    np.testing.assert_array_equal(y, np.concatenate([single.y for single in singles]))
    call = together(singles, [single.call(backward=True) for single in singles])
    run_all(own.backward(call))
    for key, rows in call.dw.items():
        np.testing.assert_array_equal(rows, [single.dw[key] for single in singles])
    for i, dx in enumerate(call.dx):
        if dx is not None:
            np.testing.assert_array_equal(dx, np.concatenate([single.dx[i] for single in singles]))
