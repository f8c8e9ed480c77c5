"""A net computed once."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mpibow.graph import Array, Graph, Kernels, choose_layout, compile_plan, initial_weights
from mpibow.graph.bound import BoundPlan
from mpibow.kernels import NUMPY


def outcome(
    graph: Graph, inputs: Mapping[str, npt.ArrayLike], kernels: Kernels = NUMPY, dtype: str = "float64", *,
    training: bool = True, weights: Mapping[str, Array] | None = None, statistics: Mapping[str, Array] | None = None,
) -> tuple[BoundPlan, dict[str, Array]]:  # fmt: skip
    """The plan, and its outputs; in training the gradients too, each as "d NAME".

    Weights and statistics are as the operators declare them, of seed 1, unless they are given by name.
    """
    layout = choose_layout(graph, kernels, training=training)
    plan = compile_plan(graph, layout, kernels, dtype, training=training)
    flat = initial_weights(layout, 1, dtype) if weights is None else layout.packed(weights, dtype)
    gradients = np.zeros_like(flat)
    bound = plan.bind(flat, gradients, statistics and plan.statistics.packed(statistics, dtype))
    for name, array in inputs.items():
        bound.inputs[name][...] = array
    bound.run()
    arrays = {name: array.copy() for name, array in bound.outputs.items()}
    if training:
        arrays |= {f"d {name}": array for name, array in layout.unpacked(gradients).items()}
    return bound, arrays
