"""Norms over axes that are not the last: NumPy's formula of these axes, and the same gradient as by differences."""

from collections.abc import Sequence

import numpy as np
import pytest

from mpibow import ops
from mpibow.errors import ShapeError
from mpibow.graph import Graph
from mpibow.testing import check_operator
from tests.outcome import outcome

SHAPE = (2, 3, 4, 5)


def layer(x, axes: tuple[int, ...]):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def root(x, axes: tuple[int, ...]):
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-6)


NORMS = [(ops.layer_norm, layer), (ops.rms_norm, root)]
every = pytest.mark.parametrize(("norm", "plain"), NORMS, ids=["layer_norm", "rms_norm"])


def weight(x, axes: tuple[int, ...]):
    """Different for every element of these axes, of which it has the shape."""
    shape = [x.shape[axis] for axis in axes]
    return np.arange(1.0, 1 + np.prod(shape)).reshape(shape)


@every
@pytest.mark.parametrize("axes", [(1,), (1, 2), (-1, 1), (2, 3), (3,), [1, 2, 3]])
def test_over_any_axes(norm, plain, axes: Sequence[int]):
    graph = Graph()
    graph.output("y", norm(graph.input("x", SHAPE), axes, name="n"))
    x, chosen = np.random.default_rng(1).standard_normal(SHAPE), tuple(sorted(axis % 4 for axis in axes))
    own = weight(x, chosen)
    named = {"n.weight": own, **({"n.bias": np.zeros(own.shape)} if norm is ops.layer_norm else {})}
    _, found = outcome(graph, {"x": x}, training=False, weights=named)
    spread = own.reshape([SHAPE[axis] if axis in chosen else 1 for axis in range(4)])
    np.testing.assert_allclose(found["y"], plain(x, chosen) * spread, rtol=1e-12, atol=1e-12)


@every
def test_its_gradient(norm, plain):
    check_operator(lambda x: norm(x, (1,)), SHAPE)


@every
@pytest.mark.parametrize("axes", [(), (0,), (1, 1), (4,), (1, -3)])
def test_what_are_no_axes(norm, plain, axes):
    with pytest.raises(
        ShapeError, match=r"^x \(2, 3, 4, 5\): axes .* must be different ones of its 4, without the batch$"
    ):
        norm(Graph().input("x", SHAPE), axes)
