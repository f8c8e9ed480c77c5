"""The nets of bench_nets.py, those of examples/ in usual sizes: our side, the data of both, and their products."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

import mpibow as mb
from benchmarks import turns
from benchmarks.sides import ROOT
from examples import char_gpt, tiny_vit, unet
from mpibow.data import Array
from mpibow.graph import Graph, Node, Tensor
from mpibow.job import Job
from mpibow.models import LossNet
from mpibow.ops import Attention, Conv2d, ConvTranspose2d, Dense, Lstm

TEXT = ROOT.parent / "shared/data/text/tinyshakespeare.txt"
CHARACTERS, CONTEXT, SAMPLES = 65, 64, 512  # tiny Shakespeare's; nanoGPT's on a CPU; as many are made
CLASSES, SIDE = {"vit": 10, "unet": 2}, {"vit": 32, "unet": 128}
UPDATE = {"name": "adamw", "lr": 1e-4, "weight_decay": 0.01}

Product = tuple[int, int, int, int]  # so many of (rows, inner) by (inner, columns)


def language(text: Tensor, units: int = 200, layers: int = 2) -> Tensor:
    """(n, t) -> logits (n, t, characters): Zaremba's small net (arXiv:1409.2329, section 4.1) by characters."""
    x = mb.embedding(text, CHARACTERS, units, name="characters")
    x, _ = mb.lstm(x, units, layers=layers, name="lstm")
    return mb.dense(x, CHARACTERS, name="head")


def characters(path: Path) -> Mapping[str, Array]:
    """Windows of a text, or of characters at random where it is not there."""
    generator = np.random.default_rng(0)
    if path.exists():
        _, codes = np.unique(np.frombuffer(path.read_bytes(), np.uint8), return_inverse=True)
        codes = np.minimum(codes, CHARACTERS - 1)
    else:
        codes = generator.integers(CHARACTERS, size=100_000)
    starts = generator.integers(len(codes) - CONTEXT, size=(SAMPLES, 1)) + np.arange(CONTEXT + 1)
    windows = codes[starts].astype(np.int32)
    return {"text": windows[:, :-1], "following": windows[:, 1:]}


def images(net: str, label: str, shape: tuple[int, ...]) -> Mapping[str, Array]:
    generator = np.random.default_rng(0)
    count = SAMPLES if net == "vit" else SAMPLES // 8
    image = generator.standard_normal((count, 3, SIDE[net], SIDE[net]), np.float32)
    return {"image": image, label: generator.integers(CLASSES[net], size=(count, *shape)).astype(np.int32)}


@dataclass(frozen=True)
class Cell:
    """A net: what it is, inputs -> logits, their axis of classes, its inputs (the target is the last), its unit."""

    about: str
    net: Callable[[Tensor], Tensor]
    axis: int
    data: Callable[[Path], Mapping[str, Array]]
    unit: str
    units: int = 1  # in a sample

    def losses(self, names: tuple[str, ...]) -> LossNet:
        first, target = names

        def net(**inputs: Tensor) -> Tensor:
            return mb.cross_entropy(self.net(inputs[first]), inputs[target], axis=self.axis)

        return net


CELLS: Mapping[str, Cell] = {
    "gpt": Cell(
        "GPT, 4 layers, 4 heads, 128 wide, context 64, 65 characters, biases, a head of its own",
        partial(char_gpt.gpt, characters=CHARACTERS, width=128, heads=4, blocks=4), 2, characters, "tokens", CONTEXT,
    ),
    "vit": Cell(
        "ViT-tiny, 12 layers, 3 heads, 192 wide, images of 32 x 32, patches of 4 x 4, mean of all",
        partial(tiny_vit.net, classes=CLASSES["vit"], patch=4, width=192, heads=3, blocks=12), 1,
        lambda _: images("vit", "label", ()), "images",
    ),
    "lstm": Cell("LSTM, 2 layers of 200, context 64, 65 characters", language, 2, characters, "tokens", CONTEXT),
    "unet": Cell(
        "U-Net, 4 levels, 32 to 512 wide, batch norm, images of 128 x 128, 2 classes",
        partial(unet.unet, classes=CLASSES["unet"], width=32, levels=4), 1,
        lambda _: images("unet", "mask", (SIDE["unet"], SIDE["unet"])), "images",
    ),
}  # fmt: skip


def job(name: str, data: Mapping[str, Array], batch: int, learners: int, device: str, out: str) -> Job:
    """Training that writes nothing but a run directory in `out`."""
    return turns.job(name, CELLS[name].losses(tuple(data)), data, batch, learners, device, out, update=UPDATE)


def products(graph: Graph) -> tuple[list[Product], float]:
    """The products of a step, forward and backward, and the operations of its convolutions."""
    found, operations = list[Product](), 0.0
    for node in graph.nodes:
        shapes = [graph.tensors[name].shape for name in node.inputs]
        made, inner = _of(node, shapes, graph)
        found += made
        operations += inner
    return found, operations


def _of(node: Node, shapes: list[tuple[int, ...]], graph: Graph) -> tuple[list[Product], float]:
    (x, *rest), y, first = shapes or [()], graph.made(node)[0], node.inputs and node.inputs[0] in graph.inputs
    match node.op:
        case Dense():
            return _layer(prod(x[:-1]), x[-1], y[-1], first), 0.0
        case Attention():
            many, t, d, s, e = prod(x[:-2]), x[-2], x[-1], rest[0][-2], rest[1][-1]
            scores, value = [(many, t, d, s), (many, t, s, d), (many, s, t, d)], [(many, t, s, e), (many, t, e, s)]
            return [*scores, *value, (many, s, t, e)], 0.0
        case Lstm(units=units):
            n, t, gates = x[0], x[1], 4 * units
            steps = [(1, n, units, gates), (1, n, gates, units)] * (t - 1)
            return [*_layer(n * t, x[2], gates, first), *steps, (1, gates, n * t, units)], 0.0
        case Conv2d(groups=1):
            return [], 2.0 * prod(y) * prod(node.weights["weight"].shape[1:]) * (2 if first else 3)
        case ConvTranspose2d():
            return [], 2.0 * prod(x) * prod(node.weights["weight"].shape[1:]) * 3
    return [], 0.0


def _layer(rows: int, inputs: int, outputs: int, first: bool) -> list[Product]:
    """Forward, by the weights, and by the input unless it is the net's."""
    made = [(1, rows, inputs, outputs), (1, outputs, rows, inputs)]
    return made if first else [*made, (1, rows, outputs, inputs)]


if __name__ == "__main__":  # NAME BATCH LEARNERS SECONDS, for same_speed.py
    name, batch, learners, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    with turns.opened(partial(job, name, CELLS[name].data(TEXT), batch, learners, "onednn")) as side:
        print(json.dumps({"images_per_second": side(seconds)}))
