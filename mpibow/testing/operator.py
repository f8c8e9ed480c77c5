"""The check of an operator, a script's own or mpibow's: shapes, determinism, memory, precision, and its gradient."""

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from mpibow.graph import FLOAT, Array, Graph, Shape, Tensor, compile_plan, initial_weights, plan_layout
from mpibow.graph.bound import BoundPlan
from mpibow.graph.memory import zeros
from mpibow.kernels import NUMPY
from mpibow.ops import concat, multiply, parameter
from mpibow.ops.reshape import View

STEP = 1e-6  # of the difference quotient, in float64
GROWTH = 4096  # bytes that a run may leave behind, such as Python's own objects


def check_operator(
    function: Callable[..., Tensor | Sequence[Tensor]],
    *inputs: Shape | Array,
    seed: int = 0,
    tolerance: float = 1e-6,
    float32: float = 1e-4,
) -> None:
    """Raises AssertionError where `function`, from tensors to one or several, breaks a rule of operators.

    An input is a shape, for standard normal numbers, or an array of integers or floats. NumPy computes everything.
    The check runs the operator twice: it must write all outputs, read nothing unwritten, give the same bits, and
    use no more memory the second time. float32 may be off by `float32` of the largest value. The gradient with
    respect to floating inputs and weights must equal the difference quotient in a random direction, within `tolerance`.
    """
    bound, flat, gradients = _bound(function, inputs, seed, "float64")
    outputs = _run(bound)
    for name, array in outputs.items():
        assert np.isfinite(array).all(), f"{name}: some of its numbers were not written, or are not finite"
    slopes = gradients.copy()
    assert np.isfinite(slopes).all(), "backward: some gradients were not written, or are not finite"
    for name, array in _run(bound).items():
        assert array.tobytes() == outputs[name].tobytes(), f"{name}: two runs give different bits"
    assert gradients.tobytes() == slopes.tobytes(), "backward: two runs give different bits"
    _memory_stays(bound)
    _gradient_is_right(bound, flat, slopes, seed, tolerance)
    narrow = _run(_bound(function, inputs, seed, "float32")[0])
    for name, array in outputs.items():
        off = np.abs(narrow[name] - array).max(initial=0.0)
        largest = np.abs(array).max(initial=1.0)
        assert off <= float32 * largest, f"{name}: float32 is off by {off:g} of {largest:g}"


def _bound(
    function: Callable[..., Tensor | Sequence[Tensor]], inputs: Sequence[Shape | Array], seed: int, dtype: str
) -> tuple[BoundPlan, Array, Array]:
    """A training plan of the sum of all outputs, each number times a random one; its weights and gradients."""
    generator = np.random.default_rng(seed)
    graph = Graph()
    fixed = {}
    tensors = []
    for i, given in enumerate(inputs):
        array = generator.standard_normal(given) if isinstance(given, tuple) else np.asarray(given)
        if array.dtype.kind == "f":
            tensors.append(parameter(array.shape, initial=lambda *_, array=array: array, name=f"input {i}"))
        else:
            fixed[f"input {i}"] = array
            tensors.append(graph.input(f"input {i}", array.shape, array.dtype.name))
    made = function(*tensors)
    parts = []
    for i, tensor in enumerate((made,) if isinstance(made, Tensor) else tuple(made)):
        graph.output(f"output {i}", tensor)
        if tensor.dtype == FLOAT:
            parts.append(View((prod(tensor.shape),))(tensor))
    whole = concat(*parts, axis=0) if len(parts) > 1 else parts[0]
    fixed["direction"] = generator.standard_normal(whole.shape)
    graph.output("loss", multiply(whole, graph.input("direction", whole.shape)))
    layout = plan_layout(graph)
    plan = compile_plan(graph, layout, replace(NUMPY, zeros=_poisoned), dtype, training=True)
    flat = initial_weights(layout, seed, dtype)
    bound = plan.bind(flat, gradients := np.zeros_like(flat))
    for name, array in bound.inputs.items():
        array[...] = fixed[name] if name in fixed else np.arange(array.size).reshape(array.shape)  # counters
    return bound, flat, gradients


def _poisoned(shape: int | Shape, dtype: str) -> Array:
    """An array whose floats are NaN until they are written."""
    made = zeros(shape, dtype)
    made.view(np.uint8).fill(0xFF)
    return made


def _run(bound: BoundPlan) -> dict[str, Array]:
    bound.run()
    return {name: array.copy() for name, array in bound.outputs.items()}


def _memory_stays(bound: BoundPlan) -> None:
    tracemalloc.start()
    try:
        bound.run()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(3):
            bound.run()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown <= 3 * GROWTH, f"every run keeps {grown // 3} bytes more"


def _gradient_is_right(bound: BoundPlan, flat: Array, slopes: Array, seed: int, tolerance: float) -> None:
    direction = np.random.default_rng(seed + 1).standard_normal(flat.size)
    start = flat.copy()
    values = []
    for sign in (1.0, -1.0):
        flat[...] = start + sign * STEP * direction
        values.append(float(_run(bound)["loss"].mean()))
    flat[...] = start
    expected = (values[0] - values[1]) / (2 * STEP)
    got = float(slopes @ direction)
    assert abs(got - expected) <= tolerance * max(abs(expected), 1e-2), (
        f"gradient along a direction is {got:g}, it should be {expected:g}"
    )
