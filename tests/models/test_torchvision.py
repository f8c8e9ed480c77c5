"""torchvision's names of nets that mpibow has too: every name and shape that its state_dict has, and no other."""

from collections.abc import Iterator

import pytest

from mpibow.graph import Graph
from mpibow.models import MODELS
from mpibow.models.torchvision import NETS, names_of, shapes_of

CLASSES = 7
COUNTS = {  # of a state_dict in torchvision 0.25, without num_batches_tracked
    "resnet18": 102, "resnet34": 182, "resnet50": 267, "resnet101": 522, "resnet152": 777, "vgg_a": 22, "vgg16": 32,
}  # fmt: skip
FEATURES = {"vgg_a": "0 3 6 8 11 13 16 18", "vgg16": "0 2 5 7 10 12 14 17 19 21 24 26 28"}  # places of convolutions


def norm(name: str, channels: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for key in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{key}", (channels,)


def resnet50() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Written from torchvision's printed state_dict."""
    yield "conv1.weight", (64, 3, 7, 7)
    yield from norm("bn1", 64)
    inputs = 64
    for stage, (depth, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], 1):
        for block in range(depth):
            name = f"layer{stage}.{block}"
            yield f"{name}.conv1.weight", (width, inputs, 1, 1)
            yield from norm(f"{name}.bn1", width)
            yield f"{name}.conv2.weight", (width, width, 3, 3)
            yield from norm(f"{name}.bn2", width)
            yield f"{name}.conv3.weight", (4 * width, width, 1, 1)
            yield from norm(f"{name}.bn3", 4 * width)
            if block == 0:
                yield f"{name}.downsample.0.weight", (4 * width, inputs, 1, 1)
                yield from norm(f"{name}.downsample.1", 4 * width)
            inputs = 4 * width
    yield "fc.weight", (CLASSES, 2048)
    yield "fc.bias", (CLASSES,)


@pytest.mark.parametrize("name", NETS)
def test_a_net_is_known_by_its_names(name):
    graph = Graph()
    MODELS[name](graph.input("image", (2, 3, 224, 224)), CLASSES)
    shapes = shapes_of(graph)
    found = names_of(shapes)
    assert found.net == name
    assert found.shapes(CLASSES) == shapes
    assert len(set(found.theirs.values())) == len(found.theirs) == COUNTS[name]


def test_resnet50_has_torchvisions_names_and_shapes_in_its_order():
    graph = Graph()
    MODELS["resnet50"](graph.input("image", (2, 3, 64, 64)), CLASSES)
    found, shapes = names_of(shapes_of(graph)), shapes_of(graph)
    assert [(theirs, shapes[ours]) for ours, theirs in found.theirs.items()] == list(resnet50())


@pytest.mark.parametrize("name", FEATURES)
def test_a_vggs_places(name):
    graph = Graph()
    MODELS[name](graph.input("image", (2, 3, 32, 32)), CLASSES)
    found = names_of(shapes_of(graph))
    places = [theirs for theirs in found.theirs.values() if theirs.endswith("weight")]
    expected = [f"features.{place}.weight" for place in FEATURES[name].split()]
    assert places == [*expected, *(f"classifier.{place}.weight" for place in (0, 3, 6))]


@pytest.mark.parametrize("name", ["lenet", "resnet20", "vgg16_cifar", "convnet"])
def test_another_net_is_none_of_them(name):
    graph = Graph()
    MODELS[name](graph.input("image", (2, 3, 32, 32)), CLASSES)
    assert names_of(shapes_of(graph)) is None
