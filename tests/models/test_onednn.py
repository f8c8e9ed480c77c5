"""Whole models on oneDNN, as they are trained and evaluated there, against NumPy in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from mpibow.graph.layout import initial_weights
from mpibow.graph.plan import choose_layout, compile_plan
from mpibow.kernels import NUMPY, KernelSet, choose
from mpibow.models import MODELS
from mpibow.models.classifier import Build, classifier

FAST = choose("auto", "float32", None)[0]
pytestmark = pytest.mark.skipif(FAST is NUMPY, reason="oneDNN or numba is not there: pip install 'mpibow[cpu]'")

BATCH = 4
SMALL, CIFAR, IMAGE = (1, 28, 28), (3, 32, 32), (3, 64, 64)
CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("lenet", SMALL, {}),
    ("mlp", SMALL, {}),
    ("resnet20", CIFAR, {}),
    ("resnet20", CIFAR, {"shortcut": "projection"}),
    ("resnet20", CIFAR, {"shortcut": "crossbow"}),
    ("vgg16_cifar", CIFAR, {}),
    ("resnet18", IMAGE, {}),
    ("resnet50", IMAGE, {}),
    ("alexnet", (3, 224, 224), {}),
    ("googlenet", (3, 224, 224), {}),
]


def build(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> Build:
    return classifier(
        partial(MODELS[name], classes=7, **options), shape, "uint8", (120.0,) * shape[0], (60.0,) * shape[0]
    )


def results(build: Build, kernels: KernelSet, dtype: str, training: bool) -> dict[str, np.ndarray[Any, Any]]:
    graph = build(BATCH, training)
    layout = choose_layout(build(BATCH, True), kernels, factors=True)
    plan = compile_plan(graph, layout, kernels, dtype, training=training)
    weights, statistics = initial_weights(layout, 3, dtype), initial_weights(plan.statistics, 3, dtype)
    gradients = np.zeros_like(weights)
    bound = plan.bind(weights, gradients, statistics)
    generator = np.random.default_rng(1)
    bound.inputs["image"][...] = generator.integers(0, 256, bound.inputs["image"].shape)
    bound.inputs["label"][...] = [1, 5, 0, 6]
    if "counter" in bound.inputs:
        bound.inputs["counter"][...] = np.arange(bound.inputs["counter"].size).reshape(BATCH, -1)
    bound.run()
    found = {name: array.copy() for name, array in bound.outputs.items()}
    if training:
        found |= {f"running {name}": array for name, array in plan.statistics.unpacked(statistics).items()}
        found |= {f"gradient of {name}": array for name, array in layout.gradients(gradients).items()}
    return found


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize(("name", "shape", "options"), CASES, ids=lambda value: str(value) if value else "")
def test_as_numpy(name: str, shape: tuple[int, ...], options: dict[str, Any], training: bool) -> None:
    if training and max(shape) > 64:
        pytest.skip("NumPy takes long")
    net = build(name, shape, options)
    fast, slow = results(net, FAST, "float32", training), results(net, NUMPY, "float64", training)
    assert fast.keys() == slow.keys()
    for key, expected in slow.items():
        # In training deep nets divide by deviations of few values, and a relu at a value that is 0 but for rounding may
        # fall on either side, which changes gradients: ResNet-50's by 3 %.
        bound = 0.1 if key.startswith("gradient") else 5e-4 if training else 1e-5
        size, off = np.linalg.norm(expected), np.linalg.norm(fast[key] - expected)
        assert off <= bound * size + 1e-6, (key, off / size)
