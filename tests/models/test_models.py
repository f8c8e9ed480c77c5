"""The models: their published numbers of weights, their shapes, and that each can be planned and learns."""

import inspect
import re
from functools import partial

import numpy as np
import pytest

from mpibow.graph import Graph, Kernels, compile_plan, initial_weights, plan_layout
from mpibow.job.synthetic import SHAPES, TABLES
from mpibow.kernels.numpy import OPERATORS
from mpibow.models import MODELS, OBJECTIVES
from mpibow.models.classifier import classifier
from mpibow.models.objective import objective

CIFAR, IMAGENET = (3, 32, 32), (3, 224, 224)
COUNTS = {  # model: image, classes, weights
    "lenet": ((1, 28, 28), 10, 1_111_946),  # Crossbow's count
    "logistic": ((1, 28, 28), 10, 784 * 10 + 10),
    "mlp": ((1, 28, 28), 10, 784 * 256 + 256 + 256 * 10 + 10),
    "convnet": ((1, 8, 8), 10, (9 + 1) * 16 + (9 * 16 + 1) * 32 + (512 + 1) * 10),
    # 0.27, 0.46, 0.66, 0.85 and 1.7 millions in table 6 of the paper; to the last one, as PyTorch's users count them
    "resnet20": (CIFAR, 10, 269_722),
    "resnet32": (CIFAR, 10, 464_154),
    "resnet44": (CIFAR, 10, 658_586),
    "resnet56": (CIFAR, 10, 853_018),
    "resnet110": (CIFAR, 10, 1_727_962),
    # torchvision's, and Crossbow's
    "resnet18": (IMAGENET, 1000, 11_689_512),
    "resnet34": (IMAGENET, 1000, 21_797_672),
    "resnet50": (IMAGENET, 1000, 25_557_032),
    "resnet101": (IMAGENET, 1000, 44_549_160),
    "resnet152": (IMAGENET, 1000, 60_192_808),
    "vgg16": (IMAGENET, 1000, 138_357_544),  # torchvision's
    "vgg_a": (IMAGENET, 1000, 132_863_336),  # torchvision's vgg11
    "vgg16_cifar": (CIFAR, 100, 15_038_116),  # Crossbow's
    "alexnet": (IMAGENET, 1000, 61_100_840),  # torchvision's
    "googlenet": (IMAGENET, 1000, 6_998_552),  # Caffe's bvlc_googlenet without its auxiliary heads
    "inception_v3": ((3, 299, 299), 1000, 23_834_568),  # torchvision's without its auxiliary head
    "overfeat": ((3, 231, 231), 1000, 145_920_872),  # 145 millions in table 4 of the paper
}
SMALL = {  # models that a step of takes a moment: image
    **dict.fromkeys(("convnet", "lenet", "logistic", "mlp"), (1, 28, 28)),
    "resnet20": (3, 12, 12),
}


def graph_of(name: str, shape: tuple[int, ...], classes: int, batch: int = 4, **options: object) -> Graph:
    return classifier(partial(MODELS[name], classes=classes, **options), shape, "uint8")(batch)


def statistics_of(graph: Graph) -> int:
    return sum(int(np.prod(one.shape)) for node in graph.nodes for one in node.statistics.values())


@pytest.mark.parametrize("name", COUNTS)
def test_number_of_weights(name):
    """What is trained: weights, biases, batch norm's scale and shift. Running statistics are not among them."""
    shape, classes, count = COUNTS[name]
    assert graph_of(name, shape, classes).weight_count == count


def test_number_of_weights_of_matrix_factorisation():
    """A row of ten for each of five thousand users, and of as many items: Crossbow's example."""
    inputs = {"user": ((), "int32"), "item": ((), "int32"), "rating": ((), "float32")}
    for tables, count in ((TABLES, 100_000), ({"users": 943, "items": 1682}, 26_250)):
        graph = objective(partial(OBJECTIVES["matrix_factorisation"], **tables), inputs)(4)
        assert graph.weight_count == count
        assert graph.tensors[graph.outputs["loss"]].shape == (4,)


def test_number_of_weights_with_other_shortcuts():
    """Crossbow's 469,114 are trained weights: a third projection, 16 to 16, and a dense layer on 2x2 pixels."""
    identity = 464_154
    projections = 16 * 32 + 32 * 64 + 2 * (32 + 64)
    assert graph_of("resnet32", CIFAR, 10, shortcut="projection").weight_count == identity + projections
    crossbow = identity + projections + 16 * 16 + 2 * 16 + 3 * 64 * 10
    assert graph_of("resnet32", CIFAR, 10, shortcut="crossbow").weight_count == crossbow == 469_114


def test_number_of_running_statistics():
    """Two a channel of each norm."""
    assert statistics_of(graph_of("resnet50", IMAGENET, 1000)) == 53_120
    assert statistics_of(graph_of("resnet20", CIFAR, 10)) == 2 * (7 * 16 + 6 * 32 + 6 * 64)


def test_every_model_is_counted_and_measured():
    assert set(COUNTS) == set(SHAPES) == set(MODELS)
    assert set(OBJECTIVES) == {"matrix_factorisation"}  # counted above
    assert {name: (classes, shape) for name, (shape, classes, _) in COUNTS.items()} == SHAPES


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"convnet"}))  # which is nobody's
def test_a_model_cites_its_paper(name):
    said = inspect.getdoc(inspect.getmodule(inspect.unwrap(MODELS[name])))
    assert re.search(r"arXiv:\d{4}\.\d{4,5}|, (19|20)\d\d\)", said or ""), said


@pytest.mark.parametrize("name", SMALL)
def test_a_few_steps_on_one_batch_bring_its_loss_down(name):
    shape = SMALL[name]
    graph = graph_of(name, shape, 5, batch=8)
    layout = plan_layout(graph)
    weights, gradients = initial_weights(layout, 1, "float64"), np.zeros(layout.size)
    plan = compile_plan(graph, layout, Kernels(OPERATORS), "float64", training=True).bind(weights, gradients)
    generator = np.random.default_rng(0)
    plan.inputs["image"][...] = generator.integers(2, size=(8, *shape))
    plan.inputs["label"][...] = np.arange(8) % 5
    losses = []
    for _ in range(30):
        plan.run()
        losses.append(float(plan.outputs["loss"].mean()))
        weights -= 0.01 * gradients
    assert losses[-1] < 0.7 * losses[0]


def test_the_mlp_has_the_layers_that_it_is_given():
    graph = classifier(partial(MODELS["mlp"], classes=3, hidden=[7, 5]), (4,), "float32")(2)
    assert [node.op.units for node in graph.nodes if node.op.kind == "dense"] == [7, 5, 3]
