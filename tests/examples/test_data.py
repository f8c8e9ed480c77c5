"""Examples of one's own data are short, and learn on one rank and on two; a torch Dataset is trained as by PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow.data.order import permutation
from tests.launching import mpirun, needs_mpi
from tests.oracle import pytorch

FOLDER = Path(__file__).parents[2] / "examples"
PRINTED = {  # the least and most that it may print
    "torch_dataset": (0.8, 1.0),  # an accuracy; chance is 0.1
    "own_cnn_folder": (0.8, 1.0),  # an accuracy; chance is 0.1
    "regression_table": (0.0, 0.3),  # a loss; 1 is that of the mean
    "segmentation": (0.0, 0.3),  # a loss; 0.37 is that of the classes' frequencies
    "language_model": (0.0, 1.0),  # a loss; 2.6 is that of the characters' frequencies
}
STEPS, BATCH, SEED = 20, 6, 3


@pytest.mark.parametrize("name", PRINTED)
def test_it_has_25_lines(name: str) -> None:
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 25


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", PRINTED)
def test_it_learns(name: str, ranks: int, tmp_path: Path) -> None:
    done = mpirun(ranks, str(FOLDER / f"{name}.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    least, most = PRINTED[name]
    assert least <= float(done.stdout.split()[-1]) <= most


@pytest.mark.torch
def test_20_steps_on_a_torch_dataset_are_pytorch_s(tmp_path: Path) -> None:
    from mpibow.graph.layout import initial_weights, plan_layout
    from mpibow.models.classifier import classifier

    torch: Any = pytorch()
    example = pytest.importorskip("examples.torch_dataset")
    generator = np.random.default_rng(SEED)
    x, y = generator.standard_normal((48, 1, 8, 8)).astype(np.float32), generator.integers(10, size=48)
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    fitted = mb.fit(
        example.net, pairs, normalise="none", batch_size=BATCH, learners=1, update={"lr": 0.01, "momentum": 0.9},
        seed=SEED, stop={"iterations": STEPS}, device="numpy", precision="float64", out=str(tmp_path),
    )  # fmt: skip
    layout = plan_layout(classifier(example.net, (1, 8, 8), "float32")(BATCH, True))
    begun = layout.views(initial_weights(layout, SEED, "float64"))
    weights = {key: torch.tensor(array.copy(), requires_grad=True) for key, array in begun.items()}
    layers = sorted({key.rpartition(".")[0] for key in weights})  # the convolution comes first
    conv, dense = ([weights[f"{layer}.{part}"] for part in ("weight", "bias")] for layer in layers)
    optimiser = torch.optim.SGD(weights.values(), lr=0.01, momentum=0.9)
    stream = np.concatenate([permutation(len(pairs), SEED, epoch) for epoch in range(3)])
    functional = torch.nn.functional
    for step in range(STEPS):
        image, label = (
            torch.stack(column) for column in zip(*[pairs[n] for n in stream[step * BATCH :][:BATCH]], strict=True)
        )
        hidden = functional.max_pool2d(torch.relu(functional.conv2d(image.double(), *conv, padding=1)), 2)
        optimiser.zero_grad()
        functional.cross_entropy(functional.linear(hidden.flatten(1), *dense), label).backward()
        optimiser.step()
    for key, tensor in weights.items():
        expected = tensor.detach().numpy()
        assert np.abs(fitted.weights[key] - expected).max() <= 1e-10 * np.abs(expected).max()
