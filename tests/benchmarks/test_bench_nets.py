"""bench_nets.py: its nets are PyTorch's, its products and figures those of a hand; nothing is measured here."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from benchmarks.nets import net_cells as cells
from benchmarks.nets import nets_page as page
from mpibow.graph.graph import Graph
from mpibow.graph.kernel import Kernels
from mpibow.graph.layout import initial_weights, plan_layout
from mpibow.graph.plan import compile_plan
from mpibow.kernels.numpy import OPERATORS
from mpibow.models.objective import objective
from tests.oracle import pytorch


def test_pytorch_is_asked_for_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, asked = importlib.import_module("benchmarks.nets.bench_nets"), list[dict[str, Any]]()
    monkeypatch.setattr(bench.os, "sched_getaffinity", lambda _: {0, 1, 2})

    def peer(limit: float, **question: Any) -> float:
        asked.append(question)
        return 5.0

    sides = bench.torch_sides(peer, True)
    assert list(sides) == [f"PyTorch {kind}, {threads}" for kind in ("eager", "compiled") for threads in (1, 3)]
    assert sides["PyTorch compiled, 3"](0.5) == 5.0
    assert asked == [{"threads": 3, "compiled": True, "seconds": 0.5}]
    assert list(bench.torch_sides(peer, False)) == ["PyTorch eager, 1", "PyTorch eager, 3"]


def graph_of(cells: ModuleType, name: str, batch: int, path: Path) -> tuple[Graph, Any]:
    data = cells.CELLS[name].data(path)
    kinds = {key: (array.shape[1:], array.dtype) for key, array in data.items()}
    return objective(cells.CELLS[name].losses(tuple(data)), kinds)(batch, True), data


def test_products_of_a_dense_layer_and_of_what_follows_it() -> None:
    """The first layer's input needs no gradient; a transposed convolution's every pixel meets 5 x 2 x 2 weights."""
    graph = Graph()
    x = mb.dense(graph.input("x", (2, 3, 4)), 8)
    mb.dense(x, 5)
    mb.conv_transpose2d(mb.conv2d(graph.input("image", (2, 3, 4, 4)), 7, 3), 5, 2)
    found, operations = cells.products(graph)
    assert found == [(1, 6, 4, 8), (1, 8, 6, 4), (1, 6, 8, 5), (1, 5, 6, 8), (1, 6, 5, 8)]
    assert operations == 2 * 2 * (2 * 7 * 2 * 2) * (3 * 3 * 3) + 3 * 2 * (2 * 7 * 2 * 2) * (5 * 2 * 2)


def test_products_of_attention_and_of_an_lstm() -> None:
    graph = Graph()
    x = graph.input("x", (2, 3, 4))
    mb.scaled_dot_product_attention(x, x, x)
    mb.lstm(x, 5)
    found, _ = cells.products(graph)
    scores = [(2, 3, 4, 3), (2, 3, 3, 4), (2, 3, 3, 4)]  # q k, then the gradients of q and k
    values = [(2, 3, 3, 4), (2, 3, 4, 3), (2, 3, 3, 4)]  # by v, then the gradients of the scores and of v
    inputs, steps = [(1, 6, 4, 20), (1, 20, 6, 4)], [(1, 2, 5, 20), (1, 2, 20, 5)] * 2
    assert sorted(found) == sorted([*scores, *values, *inputs, *steps, (1, 20, 6, 5)])


def test_a_row_has_the_ratio_of_both_sides_best() -> None:
    """A machine at half its speed in one round changes no ratio; a token is a 64th of a sample."""
    rounds = {
        "mpibow, 1": [3.0, 1.5, 3.0],
        "mpibow, 2": [6.0, 3.0, 6.0],
        "PyTorch eager, 1": [2.0, 1.0, 2.0],
        "PyTorch compiled, 2": [4.0, 2.0, 3.0],
    }
    row = page.row("gpt", "4", rounds)
    assert row[:5] == ["gpt", "4", "384 (2)", "192 (compiled, 2)", "1.50"]
    assert row[5:] == ["1.50 to 2.00", "1.35", "met", "1.50"]
    assert page.row("lstm", "4", {"mpibow, 1": [1.0, 2.0]}) == ["lstm", "4", "96.0 (1)", *[""] * 6]


@pytest.mark.parametrize(("count", "chance"), [(5, 0.9375), (6, 0.96875), (9, 1 - 20 / 512)])
def test_how_likely_an_interval_holds(count: int, chance: float) -> None:
    """Five of one side: 2 / 32 are left out; nine without the outermost: 2 (1 + 9) / 512."""
    assert page.holds(count) == chance


def test_a_share_is_of_one_threads_step() -> None:
    """Four samples at 2 a second take 2 s; the products alone half of it, at 3 GFLOP/s."""
    made = {"rounds": {"mpibow, 1": [2.0], "mpibow, 2": [4.0]}, "floor": {"seconds": 1.0, "operations": 3e9}}
    assert page.share("vit", "4", made) == ["vit", "4", "3.00", "1000.00 ms", "3", "50% of 2000.0 ms", ""]


def test_the_page_names_the_slowest_operators() -> None:
    """Eight kinds of 1 to 8 ms; the six slowest of 36 ms."""
    parts = {f"kind{i}": {"count": 1, "seconds": i / 1000} for i in range(1, 9)}
    made = {
        "rounds": {"mpibow, 1": [2.0], "PyTorch eager, 1": [1.0]},
        "floor": {"seconds": 1.0, "operations": 3e9},
        "profile": {"parts": parts, "plan": 0.036},
    }
    about = {"command": "c", "date": "d", "processor": "p", "cores": 2, "load": [0.0], "commit": ""}
    text = page.page({"about": about, "seconds": 1.0, "nets": {"vit": {"4": made}}})
    assert "- vit, batch 4, 36.0 ms: kind8 22%, kind7 19%, kind6 17%, kind5 14%, kind4 11%, kind3 8%\n" in text
    assert "| vit | 4 | 2.0 (1) | 1.0 (eager, 1) | 2.00 | 2.00 to 2.00 | 1.00 | met | 2.00 |\n" in text
    assert "| net | a second | batch 4 |\n| --- | --- | --- |\n| vit | images | 2.0 (2.00) |\n" in text
    assert (
        "| net | batch | mpibow, 1 | PyTorch eager, 1 |\n| --- | --- | --- | --- |\n| vit | 4 | 2.0 | 1.0 |\n" in text
    )


@pytest.mark.torch
@pytest.mark.parametrize("name", ["gpt", "vit", "lstm", "unet"])
def test_pytorchs_net_has_as_many_weights(name: str, tmp_path: Path) -> None:
    pytorch()
    graph, _ = graph_of(cells, name, 1, tmp_path / "none")
    theirs = importlib.import_module("benchmarks.nets.torch_nets_peer").NETS[name]()
    assert graph.weight_count == sum(weight.numel() for weight in theirs.parameters())


@pytest.mark.torch
def test_the_language_net_is_pytorchs(tmp_path: Path) -> None:
    """Weights follow each other alike; its losses in float64."""
    torch: Any = pytorch()
    graph, data = graph_of(cells, "lstm", 2, tmp_path / "none")
    peer = importlib.import_module("benchmarks.nets.torch_nets_peer")
    net, layout = peer.NETS["lstm"]().double(), plan_layout(graph)
    weights = initial_weights(layout, 1, "float64")
    ours = layout.views(weights)
    with torch.no_grad():
        for (key, parameter), name in zip(
            net.named_parameters(), (n.full(k) for n in graph.nodes for k in n.weights), strict=True
        ):
            assert key.split(".")[1].startswith(name.split(".")[1])
            parameter.copy_(torch.from_numpy(ours[name]))
    bound = compile_plan(graph, layout, Kernels(OPERATORS), "float64", training=False).bind(weights)
    for key, array in data.items():
        bound.inputs[key][...] = array[:2]
    bound.run()
    text, following = (torch.from_numpy(array[:2]).long() for array in data.values())
    expected = float(peer.losses("lstm", net, text, following).detach())
    assert np.mean(bound.outputs["loss"]) == pytest.approx(expected, rel=1e-10)
