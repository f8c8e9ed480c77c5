"""Nets as JSON: the graph that comes back is the one that was saved, and what is tampered with is refused by name."""

from __future__ import annotations

import json
import runpy
from copy import deepcopy
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.errors import CheckpointError, ShapeError
from mpibow.graph import Graph, Initialiser, Node
from mpibow.job.document import LONG, RECORDS, form_of, loaded, saved
from mpibow.models import MODELS, OBJECTIVES
from mpibow.models.augmentation import Augmentation
from mpibow.models.classifier import classifier
from mpibow.models.objective import objective, supervised
from mpibow.ops.initialisers import ZERO
from tests.models.test_models import COUNTS

EXAMPLES = Path(__file__).parents[2] / "examples"
RATINGS = {"user": ((), "int32"), "item": ((), "int32"), "rating": ((), "float32")}
double = mb.operator("double", lambda x: x + x, lambda x, y, dy: dy + dy)


def bare(node: Node) -> tuple:
    """The node without how its weights start."""
    initial = {f.name: ZERO for f in fields(node.op) if f.name not in form_of(type(node.op)).__annotations__}
    op = node.op if node.op.kind == "double" else replace(node.op, **initial)
    shapes = {node.full(key): weight.shape for key, weight in (*node.weights.items(), *node.statistics.items())}
    return node.name, op, node.inputs, node.outputs, shapes


def assert_same(one: Graph, other: Graph) -> None:
    assert [bare(node) for node in one.nodes] == [bare(node) for node in other.nodes]
    first, second = ({t.name: (t.shape, t.dtype) for t in graph.tensors.values()} for graph in (one, other))
    assert first == second
    assert (one.inputs, one.outputs) == (other.inputs, other.outputs)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_comes_back(name):
    shape, classes, _ = COUNTS[name]
    build = classifier(partial(MODELS[name], classes=classes), shape, "uint8", (0.5,) * shape[0], (2.0,) * shape[0])
    document, arrays = saved(build)
    assert not arrays
    again = loaded(json.loads(json.dumps(document)), {})
    for batch in (1, 2, 5):
        assert_same(build(batch), again(batch))


def test_ratings_and_tokens_come_back():
    net = partial(OBJECTIVES["matrix_factorisation"], users=5, items=7)
    build = objective(net, RATINGS)
    assert_same(build(4), loaded(saved(build)[0], {})(4))


@pytest.mark.parametrize(
    ("example", "name", "loss", "inputs"),
    [
        ("char_gpt", "gpt", partial(mb.cross_entropy, axis=2), {"text": ((32,), "int32"), "target": ((32,), "int32")}),
        ("unet", "unet", mb.cross_entropy, {"image": ((1, 32, 32), "float32"), "target": ((32, 32), "int32")}),
        ("table_mlp", "mlp", mb.mse_loss, {"features": ((10,), "float32"), "target": ((), "float32")}),
    ],
)
def test_the_nets_of_the_examples_come_back(example, name, loss, inputs):
    net = runpy.run_path(str(EXAMPLES / f"{example}.py"))[name]
    build = objective(supervised(net, loss, tuple(inputs)), inputs)
    assert_same(build(3), loaded(saved(build)[0], {})(3))


@pytest.mark.parametrize(
    ("example", "shape"), [("lstm_classifier", (20,)), ("squeeze_excite", (1, 16, 16)), ("tiny_vit", (1, 8, 8))]
)
def test_the_classifiers_of_the_examples_come_back(example, shape):
    net = partial(runpy.run_path(str(EXAMPLES / f"{example}.py"))["net"], classes=4)
    build = classifier(net, shape, "uint8")
    assert_same(build(3), loaded(saved(build)[0], {})(3))


def of_everything(image: mb.Tensor) -> mb.Tensor:
    """Reshapes and slices that hold the batch size, several outputs, scopes, a parameter, an operator of its own."""
    n = image.shape[0]
    with mb.scope("first"):
        x = mb.dense(mb.reshape(image, (n * 4, 16)), 8)
    left, right = mb.split(double(x) * 2.0, (3, 5), axis=1)
    x = mb.concat(left, right[:, :3] / 3.0, axis=1) + mb.parameter(6)
    return mb.dense(mb.reshape(x, (n, 24))[0:n], 3)


def test_a_net_of_ones_own_comes_back_with_its_operator():
    build = classifier(of_everything, (1, 8, 8), "float32")
    document, _ = saved(build)
    assert_same(build(3), loaded(document, {}, [double])(3))
    with pytest.raises(CheckpointError, match=r"needs the operator double .* operators=\[double\]"):
        loaded(document, {})


def test_long_tuples_are_arrays():
    mean = tuple(np.linspace(0, 1, 784).tolist())
    assert len(mean) > LONG
    build = classifier(partial(MODELS["logistic"], classes=10), (1, 28, 28), "uint8", mean, (2.0,))
    document, arrays = saved(build)
    assert len(json.dumps(document)) < 5000
    assert_same(build(2), loaded(document, arrays)(2))
    with pytest.raises(CheckpointError, match="which is not there"):
        loaded(document, {})


@pytest.mark.parametrize("count", [3, LONG + 1])
def test_infinite_numbers_come_back(count):
    mask = np.where(np.arange(count) % 2, -np.inf, 0.5)

    def net(image):
        x = mb.flatten(image) + mb.constant(mask)
        return mb.where(mb.lt(x, 0.0), float("-inf"), x)

    build = classifier(net, (1, 1, count), "float32")
    document, arrays = saved(build)
    document = json.loads(json.dumps(document, allow_nan=False))
    assert_same(build(2), loaded(document, arrays)(2))


def test_a_cropped_image_comes_back():
    build = classifier(
        partial(MODELS["logistic"], classes=10), (3, 8, 8), "uint8", augmentation=Augmentation(crop=6), top_k=3
    )
    assert_same(build(2), loaded(saved(build)[0], {})(2))


def test_another_use_of_the_batch_size_is_refused():
    def odd(image: mb.Tensor) -> mb.Tensor:
        return mb.dense(mb.flatten(image), 2) * float(image.shape[0] + 1)

    with pytest.raises(ShapeError, match=r"nodes\[\d\].settings.scale: is 3.0 at batch size 2 and 4.0 at 3"):
        saved(classifier(odd, (1, 2, 2), "float32"))


DOCUMENT = saved(classifier(partial(MODELS["convnet"], classes=10), (1, 8, 8), "uint8"))[0]


def changed(path: tuple, value):
    document = deepcopy(DOCUMENT)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("nodes", 1, "operator"), "Conv9", r"graph.nodes\[1\].operator: 'Conv9' is none of this version's operators"),
        (("nodes", 1, "operator"), "own f", r"needs the operator f of the program"),
        (("nodes", 1, "version"), 2, r"nodes\[1\].version: Conv2d is of version 2, this mpibow has version 1"),
        (("nodes", 1, "settings", "channels"), "x", r"nodes\[1\].settings.channels: must be"),
        (("nodes", 1, "settings", "channels"), -4, "conv1"),
        (("nodes", 1, "settings"), {}, r"nodes\[1\].settings.channels"),
        (("nodes", 1, "settings", "more"), 1, r"nodes\[1\].settings.more"),
        (("nodes", 1, "inputs"), ["nobody"], r"nodes\[1\].inputs: names 'nobody', which no node before it makes"),
        (("nodes", 1, "name"), "normalise1", "already has a tensor of that name"),
        (("outputs", "logits"), "nobody", "graph.outputs.logits: names 'nobody'"),
        (("inputs", "image", "shape"), ["x"], r"graph.inputs.image.shape\[0\]: must be an integer or a mapping"),
        (("nodes",), 3, "graph.nodes"),
    ],
)
def test_what_is_tampered_with_is_refused_by_name(path, value, said):
    with pytest.raises(CheckpointError, match=said):
        loaded(changed(path, value), {})


def test_every_operator_has_a_name_of_its_own_and_settings_of_types_that_are_checked():
    assert {"Conv2d", "Dense", "View", "Own"} <= RECORDS.keys()
    for record in set(RECORDS.values()) - {mb.ops.own.Own}:
        types = [str(f.type) for f in fields(record) if f.type != Initialiser]
        assert not [each for each in types if "Callable" in each or "Array" in each], record
    assert Initialiser not in form_of(RECORDS["Conv2d"]).__annotations__.values()
