"""Recurrent layers of more units than a panel has columns, whose last outputs are used as well."""

import numpy as np
import pytest

from mpibow import ops
from mpibow.kernels.compiled.table import OPERATORS
from mpibow.kernels.numpy import OPERATORS as NUMPY
from tests.kernels.cases import INITIAL, Bench, Case


@pytest.mark.parametrize("shape", [(5, 7, 33), (1, 3, 16), (2, 4, 20), (12, 1, 5)])
@pytest.mark.parametrize("units", [1, 70])
@pytest.mark.parametrize("states", [0, 1])
@pytest.mark.parametrize("op", [ops.Lstm, ops.Gru], ids=lambda op: op.kind)
def test_last_outputs_and_their_gradients(op, states, units, shape):
    """From initial states, too."""
    given = [(shape[0], units)] * (states * (2 if op is ops.Lstm else 1))
    case = Case(op(units, INITIAL, bool(given)), (shape, *given))
    mine, theirs = Bench(case, OPERATORS[op], "float32"), Bench(case, NUMPY[op], "float64")
    generator = np.random.default_rng(1)
    for key, array in mine.w.items():
        array *= 0.2
        theirs.w[key][...] = array
    for bench in (mine, theirs):
        for array, same in zip(bench.x, mine.x, strict=True):
            array[...] = same
        bench.dy[...] = mine.dy
    for each, other in zip(mine.dmore, theirs.dmore, strict=True):
        other[...] = each[...] = generator.standard_normal(each.shape)
    for bench in (mine, theirs):
        bench.forward()
        bench.backward()
    results = [(mine.y, theirs.y), *zip(mine.dx, theirs.dx, strict=True), *zip(mine.more, theirs.more, strict=True)]
    results += [(mine.dw[key], array) for key, array in theirs.dw.items()]
    for got, expected in results:
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("op", [ops.Lstm, ops.Gru], ids=lambda op: op.kind)
def test_samples_alone_have_the_bits_that_they_have_among_others(op):
    """Alone they pass by several panels of weights at once, on processors with few registers."""
    many, *few = (Bench(Case(op(70, INITIAL), ((n, 20, 9),)), OPERATORS[op], "float32") for n in (5, 1, 2))
    many.forward()
    for bench in few:
        for key, array in bench.w.items():
            array[...] = many.w[key]
        bench.x[0][...] = many.x[0][: len(bench.y)]
        bench.forward()
        np.testing.assert_array_equal(bench.y, many.y[: len(bench.y)])
