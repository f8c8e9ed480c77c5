"""Groups of weights beside PyTorch's, in float64: 50 steps of two optimisers, weights that are frozen at first or for
good, rates and decays of their own."""

import numpy as np
import pytest

from mpibow import ops
from mpibow.graph import Array, Graph, Layout, plan_layout
from mpibow.kernels import chunks_of
from mpibow.kernels.numpy import flat
from mpibow.learn.local import Stepping, kept_of
from mpibow.learn.replica import Replicas
from mpibow.optim import Adam, AdamW, RmsProp, Sgd, Update
from mpibow.optim.groups import Freeze, WeightGroup, parts_of, trained_parts
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
STEPS, THAW = 50, 20
LAYERS = ("low", "middle", "tail", "head")
# The default optimiser, the head's, and PyTorch's names and settings of both
CASES = {
    "sgd, adamw": (
        Sgd(lr=0.02, momentum=0.9, weight_decay=0.1), AdamW(lr=0.05, weight_decay=0.3),
        ("SGD", {"momentum": 0.9}), ("AdamW", {}),
    ),
    "adamw, sgd": (
        AdamW(lr=0.05, weight_decay=0.3), Sgd(lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.1),
        ("AdamW", {}), ("SGD", {"momentum": 0.9, "nesterov": True}),
    ),
    "adam, rmsprop": (
        Adam(lr=0.05, weight_decay=0.1), RmsProp(lr=0.01, momentum=0.5, weight_decay=0.2),
        ("Adam", {}), ("RMSprop", {"momentum": 0.5}),
    ),
}  # fmt: skip


def layout_of(groups: tuple[WeightGroup, ...]) -> Layout:
    graph = Graph()
    x = graph.input("x", (2, 5))
    for name in LAYERS:
        x = ops.dense(x, 5, name=name)
    return plan_layout(graph, parts=parts_of(groups, graph.weight_names))


def start(layout: Layout) -> dict[str, Array]:
    generator = np.random.default_rng(1)
    return {span.name: generator.standard_normal(span.shape) for span in layout.spans}


def slope(w: Array) -> Array:
    found = np.logspace(-1, 1, w.size).reshape(w.shape) * w + 0.3 * np.sin(5 * w)
    return found


def share(step: int) -> float:
    """A schedule."""
    return (1 + step % 7) / 7


def ours(update: Update, layout: Layout) -> dict[str, Array]:
    names = [span.name for span in layout.spans]
    first = layout.ends[trained_parts(update.groups, names, 0.0) - 1]
    then = layout.ends[trained_parts(update.groups, names, float(THAW)) - 1]
    parts = kept_of(update, layout, then)
    replicas = Replicas(1, layout.size, "float64", flat=flat, parts=parts, trained=first)
    replicas.resize(1)
    row, gradient, _ = replicas.row(0)
    row[:] = layout.packed(start(layout), "float64")
    stepping = Stepping(update, layout, replicas, flat)
    for step in range(STEPS):
        if step == THAW:
            replicas.train(then)
        gradient[:] = layout.packed({name: slope(w) for name, w in layout.unpacked(row).items()}, "float64")
        chunks = chunks_of(replicas.size, flat.chunk)
        local = stepping.at(update.lr * share(step), 8)
        flat.sma_alone(
            replicas.trained, np.zeros((len(chunks), 2)), local=local, alpha=0.0, extra=0.0, chunks=chunks
        )  # fmt: skip
        replicas.stepped(8)
    return {name: array.copy() for name, array in layout.unpacked(row).items()}


def theirs(update: Update, own: Update, kinds: tuple, layout: Layout) -> dict[str, Array]:
    weights = {name: torch.nn.Parameter(torch.tensor(w)) for name, w in start(layout).items()}

    def grouped(name: str) -> dict:
        settings, scale = (own, 2.0) if name.startswith("head") else (update, 0.5 if name == "middle.bias" else 1.0)
        decay = settings.weight_decay if name.endswith("weight") else 0.0
        if name == "middle.weight":
            decay = 0.7
        return {"params": [weights[name]], "weight_decay": decay, "lr": settings.lr * scale}

    mine = [grouped(name) for name in weights if not name.startswith("head")]
    heads = [grouped(name) for name in weights if name.startswith("head")]
    optimisers = [
        getattr(torch.optim, kind)(found, **options)
        for (kind, options), found in zip(kinds, (mine, heads), strict=True)
    ]
    rates = [[group["lr"] for group in optimiser.param_groups] for optimiser in optimisers]
    for step in range(STEPS):
        for name, w in weights.items():
            frozen = name == "tail.weight" or (name.startswith("low") and step < THAW)
            w.grad = None if frozen else torch.tensor(slope(w.detach().numpy()))
        for optimiser, lrs in zip(optimisers, rates, strict=True):
            for group, lr in zip(optimiser.param_groups, lrs, strict=True):
                group["lr"] = lr * share(step)
            optimiser.step()
    return {name: w.detach().numpy() for name, w in weights.items()}


@pytest.mark.parametrize(("update", "own", "kind", "own_kind"), CASES.values(), ids=CASES.keys())
def test_fifty_steps(update: Update, own: Update, kind, own_kind):
    groups = (
        WeightGroup("low.*", freeze=Freeze(float(THAW))),
        WeightGroup("tail.weight", freeze=True),
        WeightGroup("head.*", lr_scale=2.0, update=own),
        WeightGroup("middle.weight", weight_decay=0.7),
        WeightGroup("middle.*", lr_scale=0.5),
    )
    layout = layout_of(groups)
    update = type(update)(**{**vars(update), "groups": groups})
    found, expected = ours(update, layout), theirs(update, own, (kind, own_kind), layout)
    begun = start(layout)
    for name, array in expected.items():
        assert (np.abs(array - begun[name]).max() > 0.05) == (name != "tail.weight"), name
        np.testing.assert_allclose(found[name], array, rtol=1e-10, atol=1e-10, err_msg=name)
