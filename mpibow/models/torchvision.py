"""The names that torchvision, and timm for ResNets, give the weights of nets that mpibow has as well."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mpibow.graph import Graph, Shape

from . import MODELS
from .resnet import BASIC, BOTTLENECK
from .vgg import A, D

STATISTICS = {"mean": "running_mean", "variance": "running_var"}  # ours and theirs
COUNTED = "num_batches_tracked"  # by a batch norm; mpibow has no such number
VGG = {"vgg_a": A, "vgg16": D}  # vgg11 and vgg16 there
NETS = (*BASIC, *BOTTLENECK, *VGG)


@dataclass(frozen=True)
class Names:
    """A net that torchvision has too: its name here, and theirs by ours, in the order of a state_dict."""

    net: str
    theirs: Mapping[str, str]

    def shapes(self, classes: int) -> dict[str, Shape]:
        """The shapes in torchvision's net for images of 3 channels and 224 x 224, by our names."""
        graph = Graph()
        MODELS[self.net](graph.input("image", (1, 3, 224, 224)), classes)
        return shapes_of(graph)


def shapes_of(graph: Graph) -> dict[str, Shape]:
    """The shapes of weights and statistics by name."""
    return {
        node.full(key): weight.shape
        for node in graph.nodes
        for key, weight in (*node.weights.items(), *node.statistics.items())
    }


def names_of(names: Collection[str]) -> Names | None:
    """The net whose weights and statistics have these names; None where torchvision has no such net."""
    wanted = set(names)
    return next((found for found in map(_names, NETS) if found.theirs.keys() == wanted), None)


def _names(net: str) -> Names:
    if net in VGG:
        return Names(net, dict(_of_vgg(VGG[net])))
    return Names(net, dict(_of_resnet({**BASIC, **BOTTLENECK}[net], 3 if net in BOTTLENECK else 2)))


def _of_resnet(depths: Sequence[int], convolutions: int) -> Iterator[tuple[str, str]]:
    """Convolutions and batch norms are numbered together here, a shortcut's behind those of its block."""
    places = [("conv1", "bn1")]
    for stage, depth in enumerate(depths, 1):
        for block in range(depth):
            place = f"layer{stage}.{block}"
            places += [(f"{place}.conv{i}", f"{place}.bn{i}") for i in range(1, convolutions + 1)]
            if block == 0 and (stage > 1 or convolutions == 3):
                places.append((f"{place}.downsample.0", f"{place}.downsample.1"))
    for number, (convolution, norm) in enumerate(places, 1):
        yield f"conv{number}.weight", f"{convolution}.weight"
        for key in ("weight", "bias", *STATISTICS):
            yield f"batch_norm{number}.{key}", f"{norm}.{STATISTICS.get(key, key)}"
    for key in ("weight", "bias"):
        yield f"dense1.{key}", f"fc.{key}"


def _of_vgg(stages: Sequence[Sequence[int]]) -> Iterator[tuple[str, str]]:
    """A stage is a list of convolution and relu by turns there, with a pooling behind them."""
    places = list[int]()
    place = 0
    for stage in stages:
        places += range(place, place + 2 * len(stage), 2)
        place += 2 * len(stage) + 1
    pairs = [(f"conv{n}", f"features.{place}") for n, place in enumerate(places, 1)]
    pairs += [(f"dense{n}", f"classifier.{place}") for n, place in enumerate((0, 3, 6), 1)]
    for ours, theirs in pairs:
        for key in ("weight", "bias"):
            yield f"{ours}.{key}", f"{theirs}.{key}"
