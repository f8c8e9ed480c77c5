"""The check of an operator finds each fault that it says it finds; own operators in a net."""

from collections.abc import Callable

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import ShapeError
from mpibow.graph import Array, Graph, Tensor, choose_layout, compile_plan
from mpibow.kernels import NUMPY, find_kernels
from mpibow.testing import check_operator
from tests.outcome import outcome
from tests.refusals import refuses


def swish(x: Array):
    return x / (1 + np.exp(-x))


def swish_back(x: Array, y: Array, dy: Array):
    s = 1 / (1 + np.exp(-x))
    return dy * (s + y * (1 - s))


def halves(x: Array):
    return x[: len(x) // 2], 2 * x[len(x) // 2 :]


def halves_back(x: Array, y: tuple[Array, ...], dy: tuple[Array, ...]):
    return np.concatenate([dy[0], 2 * dy[1]])


def picked(table: Array, index: Array):
    return table[index]


def picked_back(table: Array, index: Array, y: Array, dy: Array):
    made = np.zeros_like(table)
    np.add.at(made, index, dy)
    return made, None


OWN_SWISH = mb.operator("swish", swish, swish_back)
OWN_HALVES = mb.operator("halves", halves, halves_back, shape=lambda x: ((x[0] // 2, *x[1:]),) * 2)
OWN_PICKED = mb.operator("picked", picked, picked_back, shape=lambda table, index: (*index, *table[1:]))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (OWN_SWISH, ((4, 3),)),
        (OWN_HALVES, ((4, 3),)),
        (OWN_PICKED, ((5, 2), np.array([0, 4, 4]))),
        (lambda x: mb.conv2d(x, 3, 3, padding=1), ((2, 2, 5, 5),)),
        (lambda x: mb.dropout(mb.batch_norm(x), 0.3), ((8, 3),)),
        (lambda x, label: mb.softmax_cross_entropy(x, label), ((4, 3), np.array([0, 2, 1, 1], np.int32))),
    ],
)
def test_what_is_right_passes(function: Callable[..., Tensor], inputs):
    check_operator(function, *inputs)


COUNT = [0.0]


def unsteady(x: Array):
    COUNT[0] += 1
    return x + COUNT[0]


KEPT = []


def keeping(x: Array):
    KEPT.append(np.zeros(10_000))
    return x.copy()


def narrowing(x: Array):
    return x.astype(np.float16).astype(x.dtype) if x.dtype == np.float32 else x.copy()


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (mb.operator("swish", swish, lambda x, y, dy: dy * y), "gradient along a direction is"),
        (mb.operator("log", lambda x: np.log(np.minimum(x, 0)), lambda x, y, dy: dy), "output 0: some of its numbers"),
        (mb.operator("swish", swish, lambda x, y, dy: dy + np.nan), "backward: some gradients"),
        (mb.operator("unsteady", unsteady, lambda x, y, dy: dy), "output 0: two runs give different bits"),
        (mb.operator("keeping", keeping, lambda x, y, dy: dy), "every run keeps 80"),
        (mb.operator("narrowing", narrowing, lambda x, y, dy: dy), "output 0: float32 is off by"),
    ],
)
def test_every_fault_is_found(function: Callable[..., Tensor], fault):
    with np.errstate(all="ignore"), pytest.raises(AssertionError) as error:
        check_operator(function, (40, 3))
    assert str(error.value).startswith(fault)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (mb.operator("sums", lambda x: x.sum(1), None), "sums1: forward gives an array of (2,), it should be (2, 3)"),
        (mb.operator("two", lambda x: (x, x), None), "two1: forward gives 2 arrays, it should give 1"),
    ],
)
def test_a_shape_that_is_not_as_said(function: Callable[..., Tensor], fault):
    graph = Graph()
    graph.output("y", function(graph.input("x", (2, 3))))
    layout = choose_layout(graph, NUMPY, training=False)
    bound = compile_plan(graph, layout, NUMPY, "float32", training=False).bind(np.zeros(0, np.float32))
    with refuses(fault, ShapeError):
        bound.run()


def test_own_operators_in_a_plan_of_the_device():
    """What trains with `device: auto`: NumPy's step between the device's."""
    kernels, found = find_kernels("auto", "float32", None)[0], []
    for each in (kernels, NUMPY):
        graph = Graph()
        first, second = OWN_HALVES(OWN_SWISH(mb.dense(graph.input("x", (4, 6)), 16)))
        graph.output("loss", mb.softmax_cross_entropy(first * second, graph.input("label", (2,), "int32")))
        x = np.random.default_rng(1).standard_normal((4, 6))
        bound, arrays = outcome(graph, {"x": x, "label": [3, 15]}, each, "float32")
        found.append(arrays)
        assert bound.plan.reference == ([] if each is NUMPY else ["halves", "swish"])
    for key, expected in found[1].items():
        np.testing.assert_allclose(found[0][key], expected, rtol=1e-5, atol=1e-6)
