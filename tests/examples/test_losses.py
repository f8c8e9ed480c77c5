"""Examples with losses and metrics beside their nets are short, learn on one rank and on two, and are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from examples import early_stopping, multi_label, two_outputs
from mpibow.data.order import permutation
from tests.launching import mpirun, needs_mpi
from tests.oracle import pytorch

FOLDER = Path(__file__).parents[2] / "examples"
LEAST = {  # what it must print at least
    "multi_label": 0.9,  # f1; all labels always given come to 0.6
    "two_outputs": 0.75,  # an accuracy; chance is 0.5
    "early_stopping": 0.5,  # a share; always giving the mean comes to 0.2
}
STEPS, BATCH, SEED = 20, 6, 3


@pytest.mark.parametrize("name", LEAST)
def test_it_has_25_lines(name: str) -> None:
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 25


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", LEAST)
def test_it_learns(name: str, ranks: int, tmp_path: Path) -> None:
    done = mpirun(ranks, str(FOLDER / f"{name}.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    value, *rest = done.stdout.split()
    assert LEAST[name] <= float(value) <= 1.0
    if name == "early_stopping":
        assert rest == ["callback", "EarlyStopping"]


def real(*shape: int) -> Any:
    """Numbers that float32 holds, as data are stored so."""
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32).astype(np.float64)


X = {"multi_label": real(48, 64), "two_outputs": real(48, 10), "early_stopping": real(48, 5)}
TARGETS: dict[str, Any] = {
    "multi_label": (real(48, 4) > 0).astype(np.float64),
    "two_outputs": {"value": real(48), "sign": (real(48) > 0).astype(int)},
    "early_stopping": real(48),
}
OURS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "multi_label": (multi_label.net, {"loss": mb.binary_cross_entropy_with_logits}),
    "two_outputs": (
        two_outputs.net, {"loss": {"value": mb.mse_loss, "sign": mb.cross_entropy}, "loss_weights": {"sign": 0.5}}
    ),
    "early_stopping": (early_stopping.net, {"loss": mb.huber_loss}),
}  # fmt: skip


def ours(name: str, iterations: int, out: Path) -> dict[str, Any]:
    net, given = OURS[name]
    inputs = {"features": X[name]} if name == "two_outputs" else X[name]
    return mb.fit(
        net, (inputs, TARGETS[name]), batch_size=BATCH, learners=1, update={"lr": 0.01, "momentum": 0.9}, seed=SEED,
        stop={"iterations": iterations}, device="numpy", precision="float64", out=str(out), **given,
    ).weights  # fmt: skip


def theirs(name: str, torch: Any, weights: dict[str, Any], x: Any, target: Any) -> Any:
    """The loss of a batch by PyTorch's functions."""
    functional = torch.nn.functional
    layers = list(dict.fromkeys(key.rpartition(".")[0] for key in weights))

    def dense(i: int, given: Any) -> Any:
        return functional.linear(given, weights[f"{layers[i]}.weight"], weights[f"{layers[i]}.bias"])

    hidden = torch.relu(dense(0, x))
    if name == "multi_label":
        return functional.binary_cross_entropy_with_logits(dense(1, hidden), target)
    if name == "early_stopping":
        return functional.huber_loss(dense(1, hidden)[:, 0], target)
    value = functional.mse_loss(dense(1, hidden)[:, 0], target["value"])
    return value + 0.5 * functional.cross_entropy(dense(2, hidden), target["sign"])


@pytest.mark.torch
@pytest.mark.parametrize("name", OURS)
def test_20_steps_are_pytorch_s(name: str, tmp_path: Path) -> None:
    torch: Any = pytorch()
    first, last = ours(name, 1, tmp_path / "first"), ours(name, STEPS + 1, tmp_path / "last")
    # the first step's weights are the same, as samples come in the same order: PyTorch goes on from there
    weights = {key: torch.tensor(array, requires_grad=True) for key, array in initial(name).items()}
    optimiser = torch.optim.SGD(weights.values(), lr=0.01, momentum=0.9)
    stream = np.concatenate([permutation(len(X[name]), SEED, epoch) for epoch in range(4)])
    for step in range(STEPS + 1):
        rows = stream[step * BATCH : (step + 1) * BATCH]
        x, given = torch.tensor(X[name][rows]), TARGETS[name]
        parts = {key: torch.tensor(array[rows]) for key, array in given.items()} if isinstance(given, dict) else None
        optimiser.zero_grad()
        theirs(name, torch, weights, x, torch.tensor(given[rows]) if parts is None else parts).backward()
        optimiser.step()
        for found in [first] if step == 0 else [last] if step == STEPS else []:
            for key, tensor in weights.items():
                expected = tensor.detach().numpy()
                assert np.abs(found[key] - expected).max() <= 1e-10 * np.abs(expected).max()


def initial(name: str) -> dict[str, Any]:
    """The weights that a run begins with: functions of the seed and their names."""
    from mpibow.graph.layout import initial_weights, plan_layout
    from mpibow.models.objective import objective
    from mpibow.models.supervised import TARGET, supervised

    net, given = OURS[name]
    targets = TARGETS[name] if isinstance(TARGETS[name], dict) else {TARGET: TARGETS[name]}
    first = "features" if name != "multi_label" else "pixels"
    kinds = {key: (array.shape[1:], np.asarray(array).dtype) for key, array in {first: X[name], **targets}.items()}
    kinds = {key: (shape, np.dtype("int32") if dtype.kind == "i" else dtype) for key, (shape, dtype) in kinds.items()}
    graph = objective(supervised(net, given["loss"], kinds, given.get("loss_weights")), kinds)(BATCH, True)
    layout = plan_layout(graph)
    return {key: array.copy() for key, array in layout.views(initial_weights(layout, SEED, "float64")).items()}
