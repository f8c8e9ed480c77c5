"""bench_nets.py: its nets are PyTorch's, its products and figures those of a hand; nothing is measured here."""

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import mpibow as mb
from benchmarks.nets import net_cells as cells
from mpibow.graph import Graph, initial_weights, plan_layout
from mpibow.models.objective import objective
from tests.oracle import pytorch
from tests.outcome import outcome


def graph_of(cells: ModuleType, name: str, batch: int, path: Path) -> tuple:
    data = cells.CELLS[name].data(path)
    kinds = {key: (array.shape[1:], array.dtype) for key, array in data.items()}
    return objective(cells.CELLS[name].losses(tuple(data)), kinds)(batch, True), data


def test_products_of_a_dense_layer_and_of_what_follows_it():
    """The first layer's input needs no gradient; a transposed convolution's every pixel meets 5 x 2 x 2 weights."""
    graph = Graph()
    x = mb.dense(graph.input("x", (2, 3, 4)), 8)
    mb.dense(x, 5)
    mb.conv_transpose2d(mb.conv2d(graph.input("image", (2, 3, 4, 4)), 7, 3), 5, 2)
    found, operations = cells.products(graph)
    assert found == [(1, 6, 4, 8), (1, 8, 6, 4), (1, 6, 8, 5), (1, 5, 6, 8), (1, 6, 5, 8)]
    assert operations == 2 * 2 * (2 * 7 * 2 * 2) * (3 * 3 * 3) + 3 * 2 * (2 * 7 * 2 * 2) * (5 * 2 * 2)


def test_products_of_attention_and_of_an_lstm():
    graph = Graph()
    x = graph.input("x", (2, 3, 4))
    mb.scaled_dot_product_attention(x, x, x)
    mb.lstm(x, 5)
    found, _ = cells.products(graph)
    scores = [(2, 3, 4, 3), (2, 3, 3, 4), (2, 3, 3, 4)]  # q k, then the gradients of q and k
    values = [(2, 3, 3, 4), (2, 3, 4, 3), (2, 3, 3, 4)]  # by v, then the gradients of the scores and of v
    inputs, steps = [(1, 6, 4, 20), (1, 20, 6, 4)], [(1, 2, 5, 20), (1, 2, 20, 5)] * 2
    assert sorted(found) == sorted([*scores, *values, *inputs, *steps, (1, 20, 6, 5)])


@pytest.mark.torch
@pytest.mark.parametrize("name", ["gpt", "vit", "lstm", "unet"])
def test_pytorchs_net_has_as_many_weights(name, tmp_path):
    pytorch()
    graph, _ = graph_of(cells, name, 1, tmp_path / "none")
    theirs = importlib.import_module("benchmarks.nets.torch_nets_peer").NETS[name]()
    assert graph.weight_count == sum(weight.numel() for weight in theirs.parameters())


@pytest.mark.torch
def test_the_language_net_is_pytorchs(tmp_path):
    """Weights follow each other alike; its losses in float64."""
    torch = pytorch()
    graph, data = graph_of(cells, "lstm", 2, tmp_path / "none")
    peer = importlib.import_module("benchmarks.nets.torch_nets_peer")
    net, layout = peer.NETS["lstm"]().double(), plan_layout(graph)
    ours = layout.views(initial_weights(layout, 1, "float64"))
    with torch.no_grad():
        for (key, parameter), name in zip(
            net.named_parameters(), (n.full(k) for n in graph.nodes for k in n.weights), strict=True
        ):
            assert key.split(".")[1].startswith(name.split(".")[1])
            parameter.copy_(torch.from_numpy(ours[name]))
    _, found = outcome(graph, {key: array[:2] for key, array in data.items()}, training=False, weights=ours)
    text, following = (torch.from_numpy(array[:2]).long() for array in data.values())
    expected = float(peer.losses("lstm", net, text, following).detach())
    assert np.mean(found["loss"]) == pytest.approx(expected, rel=1e-10)
