"""The models: their published numbers of weights, their shapes, and that each can be planned and learns."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from mpibow.graph.graph import Graph
from mpibow.graph.layout import initial_weights, plan_layout
from mpibow.graph.plan import compile_plan
from mpibow.kernels.numpy import OPERATORS
from mpibow.models import MODELS
from mpibow.models.classifier import classifier

COUNTS = {  # name, options, image, classes: weights
    ("lenet", (1, 28, 28), 10): 1_111_946,  # Crossbow's count
    ("logistic", (1, 28, 28), 10): 784 * 10 + 10,
    ("mlp", (1, 28, 28), 10): 784 * 256 + 256 + 256 * 10 + 10,
    ("convnet", (1, 8, 8), 10): (9 + 1) * 16 + (9 * 16 + 1) * 32 + (512 + 1) * 10,
}


def graph_of(name: str, shape: tuple[int, ...], classes: int, batch: int = 4) -> Graph:
    return classifier(partial(MODELS[name], classes=classes), shape, "uint8")(batch)


@pytest.mark.parametrize("key", COUNTS, ids=lambda key: key[0])
def test_number_of_weights(key: tuple[str, tuple[int, ...], int]) -> None:
    assert graph_of(*key).weight_count == COUNTS[key]


def test_every_model_is_counted() -> None:
    assert {name for name, *_ in COUNTS} == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_few_steps_on_one_batch_bring_its_loss_down(name: str) -> None:
    shape = (1, 28, 28)
    graph = graph_of(name, shape, 5, batch=8)
    layout = plan_layout(graph)
    weights, gradients = initial_weights(layout, 1, "float64"), np.zeros(layout.size)
    plan = compile_plan(graph, layout, OPERATORS, "float64", training=True).bind(weights, gradients)
    generator = np.random.default_rng(0)
    plan.inputs["image"][...] = generator.integers(2, size=(8, *shape))
    plan.inputs["label"][...] = np.arange(8) % 5
    losses = []
    for _ in range(30):
        plan.run()
        losses.append(float(plan.outputs["loss"].mean()))
        weights -= 0.01 * gradients
    assert losses[-1] < 0.7 * losses[0]


def test_the_mlp_has_the_layers_that_it_is_given() -> None:
    graph = classifier(partial(MODELS["mlp"], classes=3, hidden=[7, 5]), (4,), "float32")(2)
    assert [node.op.units for node in graph.nodes if node.op.kind == "dense"] == [7, 5, 3]  # type: ignore[attr-defined]
