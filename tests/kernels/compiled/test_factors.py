"""A dense layer's gradient written as factors: their product is dy^T x, and the bias' gradient is there as well."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpibow import ops
from mpibow.graph import Array
from mpibow.graph.formats import unpack
from mpibow.graph.layout import whole
from mpibow.kernels.compiled.factors import LANES, NEAR, spread, write_factors
from mpibow.kernels.onednn.dense import TILES
from tests.kernels.cases import INITIAL, Bench, Case
from tests.kernels.onednn import TABLE, needs_onednn


def product(row: Array, rank: int, units: int, inputs: int) -> Array:
    """The gradient (units, inputs) whose factors `row` begins with."""
    factors = np.array([[0, units * inputs, rank, inputs, LANES]])
    return unpack(whole(row, factors), TILES, (units, inputs))


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(0, 1000), st.booleans())
@settings(max_examples=40)
def test_the_product_is_the_gradient(batch, blocks, tiles, more, seed, biased):
    """Of a batch that need not fill the rank; nothing is written behind the factors."""
    units, inputs, rank = LANES * blocks, 16 * tiles, -(-batch // 4) * 4 + 4 * more
    generator = np.random.default_rng(seed)
    x, dy = (generator.standard_normal((batch, n)).astype(np.float32) for n in (inputs, units))
    row, bias = np.full(max(units * inputs, rank * (units + inputs)), np.nan, np.float32), np.full(units, 7, np.float32)
    for _ in range(2):  # it overwrites
        sizes = {"batch": batch, "inputs": inputs, "units": units, "rank": rank}
        write_factors.command(x=x, dy=dy, out=row, bias=bias if biased else None, **sizes)()
    assert np.isnan(row[rank * (units + inputs) :]).all()
    v = row[: rank * units].reshape(-1, rank, LANES)
    s = row[rank * units : rank * (units + inputs)].reshape(inputs, rank)
    np.testing.assert_array_equal(v[:, :batch].transpose(1, 0, 2).reshape(batch, units), dy)
    np.testing.assert_array_equal(s[:, :batch].T, x)
    assert not v[:, batch:].any()
    assert not s[:, batch:].any()
    expected = dy.astype(float).sum(axis=0) if biased else np.full(units, 7)
    np.testing.assert_allclose(bias, expected, rtol=0, atol=1e-6 * batch**0.5 * np.abs(expected).max())


@needs_onednn
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batch", [3, 4])
def test_a_dense_layer_writes_them_where_its_plan_wants_them(batch, bias):
    """Whole gradients and factors of one layer are the same; dx knows nothing of it."""
    units, inputs = 128, 64
    kernel = TABLE[ops.Dense]
    made = Bench(Case(ops.Dense(units, bias, INITIAL), ((batch, inputs),)), kernel, "float32")
    offered = kernel.formats(made.case.op, made.shapes, ("ab",))
    if not offered.factors:
        pytest.skip(f"this library has weights as {offered.w['weight']} here, not as {TILES}")
    assert offered.factors == {"weight": 4}
    made.forward()
    made.backward()
    expected = {key: array.copy() for key, array in made.dw.items()}
    made.shapes = replace(made.shapes, formats=offered)
    call = made.call(backward=True)
    kernel.backward(call)()
    got = product(call.dw["weight"].reshape(-1), 4, units, inputs)
    np.testing.assert_allclose(got, expected["weight"], rtol=0, atol=1e-6 * np.abs(expected["weight"]).max())
    np.testing.assert_array_equal(call.dx[0], made.dx[0])
    if bias:
        np.testing.assert_allclose(
            call.dw["bias"], expected["bias"], rtol=0, atol=2e-6 * np.abs(expected["bias"]).max()
        )


@needs_onednn
@pytest.mark.parametrize("blocks", [1, 4, 7])
def test_the_gradient_of_few_rows(blocks):
    generator, shapes = np.random.default_rng(0), ((blocks, 264, LANES), (3, LANES * blocks))
    weight, dy = (generator.standard_normal(shape).astype(np.float32) for shape in shapes)
    dx, sums = np.full(3 * 264, np.nan, np.float32), np.full(3 * NEAR * 16, np.nan, np.float32)
    spread.command(weight=weight, dy=dy, dx=dx, sums=sums, batch=3, inputs=264, units=LANES * blocks)()
    expected = np.einsum("nbj,bij->ni", dy.reshape(3, blocks, LANES).astype(float), weight)
    np.testing.assert_allclose(dx.reshape(3, 264), expected, rtol=0, atol=1e-6 * np.abs(expected).max())
