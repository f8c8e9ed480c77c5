"""Indices, reshape, stack, split and reductions as functions on tensors: NumPy's numbers, and right gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph.graph import Graph, Tensor
from mpibow.graph.layout import plan_layout
from mpibow.graph.plan import compile_plan
from mpibow.kernels import NUMPY
from mpibow.testing import check_operator

X = np.random.default_rng(1).standard_normal((4, 3, 6))
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "x[1]": (lambda x: x[1], lambda x: x[1]),
    "x[..., -1]": (lambda x: x[..., -1], lambda x: x[..., -1]),
    "x[:, 1:, ::2]": (lambda x: x[:, 1:, ::2], lambda x: x[:, 1:, ::2]),
    "x[None, 2, :, None]": (lambda x: x[None, 2, :, None], lambda x: x[None, 2, :, None]),
    "reshape": (lambda x: mb.reshape(x, (-1, 9)), lambda x: x.reshape(-1, 9)),
    "transpose": (mb.transpose, lambda x: x.swapaxes(-1, -2)),
    "permute": (lambda x: mb.permute(x, 2, 0, -2), lambda x: x.transpose(2, 0, 1)),
    "stack": (lambda x: mb.stack(x, x * 2, axis=-1), lambda x: np.stack([x, 2 * x], -1)),
    "split, the last": (lambda x: mb.split(x, 4, axis=-1)[1], lambda x: x[..., 4:]),
    "split, swapped": (lambda x: mb.concat(*mb.split(x, (1, 2), 1)[::-1]), lambda x: x[:, [1, 2, 0]]),
    "sum": (mb.sum, lambda x: x.sum((1, 2))),
    "mean over one": (lambda x: mb.mean(x, -1), lambda x: x.mean(-1)),
    "amax, kept": (lambda x: mb.amax(x, (0, 2), keepdim=True), lambda x: x.max((0, 2), keepdims=True)),
    "centred": (lambda x: x - mb.mean(x, -1, keepdim=True), lambda x: x - x.mean(-1, keepdims=True)),
    "x @ x^T": (lambda x: x @ mb.transpose(x), lambda x: x @ x.swapaxes(-1, -2)),
    "broadcast @": (lambda x: mb.matmul(x[:1], mb.transpose(x)), lambda x: x[:1] @ x.swapaxes(-1, -2)),
    "1 / (x^2 + 1)": (lambda x: 1 / (x**2 + 1), lambda x: 1 / (x**2 + 1)),
    "where": (lambda x: mb.where(mb.gt(x, 0.0), x, x * 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_numpys_and_its_gradient_is_right(case: str) -> None:
    ours, theirs = CASES[case]
    graph = Graph()
    graph.output("y", ours(graph.input("x", X.shape)))
    bound = compile_plan(graph, plan_layout(graph), NUMPY, "float64", training=False).bind(np.zeros(0))
    bound.inputs["x"][...] = X
    bound.run()
    np.testing.assert_allclose(bound.outputs["y"], theirs(X), rtol=1e-12, atol=1e-14)
    check_operator(ours, X)


def test_layers_of_several_outputs_have_right_gradients() -> None:
    def flat(made: Any) -> list[Tensor]:
        y, last = made
        return [y, *last] if isinstance(last, tuple) else [y, last]

    check_operator(lambda x: flat(mb.lstm(x, 5)), (2, 4, 3))
    check_operator(lambda x: flat(mb.gru(x, 5)), (2, 4, 3))
    check_operator(lambda x: mb.split(x, 2, axis=1), (2, 5))


@pytest.mark.parametrize(
    ("index", "fault"),
    [
        (4, "x (4, 3, 6): index 4 of axis 0 must be a slice or within it"),
        ("a", "x (4, 3, 6): index 'a' of axis 0 must be a slice or within it"),
        (slice(None, None, -1), "x (4, 3, 6): slices go forwards; mb.flip turns axis 0 round"),
        ((0, 0, 0, 0), "x (4, 3, 6): it has 3 axes, an index takes at most that many and one ..."),
    ],
)
def test_an_index_that_does_not_fit(index: Any, fault: str) -> None:
    with pytest.raises(ShapeError) as error:
        Graph().input("x", X.shape)[index]
    assert str(error.value) == fault


def test_a_tensor_is_no_index() -> None:
    graph = Graph()
    with pytest.raises(ShapeError) as error:
        graph.input("x", X.shape)[:, graph.input("i", (2,), "int32")]
    assert str(error.value) == "x (4, 3, 6): i is not an index; mb.gather and mb.embedding take tensors"


def test_numpys_integers_are_indices() -> None:
    x = Graph().input("x", X.shape)
    assert x[np.int64(1), :, : np.int32(2)].shape == (3, 2)


@pytest.mark.parametrize("shape", [(5, -1), (-1, -1), (4, 3, 7), (0, -1)])
def test_a_shape_of_other_elements(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError) as error:
        mb.reshape(Graph().input("x", X.shape), shape)
    assert str(error.value) == f"reshape of x (4, 3, 6): {shape} must have as many elements, and at most one -1"
