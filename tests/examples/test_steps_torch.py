"""Twenty steps of `fit` on the nets of examples/ are those of PyTorch's own loop, in float64."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import mpibow as mb
from mpibow.data import Array, TokenStream, open_records
from mpibow.data.columns import open_table
from mpibow.data.digits import write_digits
from mpibow.data.order import samples_at
from mpibow.data.text import open_text
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
nets = import_module("tests.examples.torch_nets")  # imports torch itself
nn, F = torch.nn, torch.nn.functional

STEPS, BATCH, COUNT, SEED = 20, 6, 48, 3  # two epochs and a half
TOLERANCE = 1e-10  # of the largest number of an array
ADAMW = {"name": "adamw", "lr": 3e-3, "weight_decay": 0.0, "eps": 1e-5}
COUNTED = "num_batches_tracked"
STATISTICS = {"running_mean": "mean", "running_var": "variance"}
Fit = Callable[..., mb.Fitted]


@dataclass(frozen=True)
class Case:
    """`fit` of all but the course of a training, and PyTorch's net, inputs, targets and their mean loss.

    `names` are beginnings of PyTorch's names with ours; of all other weights the names are the same.
    """

    fit: Fit
    module: nn.Module
    x: torch.Tensor
    y: torch.Tensor
    loss: Callable = F.cross_entropy
    update: Mapping = field(default_factory=lambda: {"lr": 0.01, "momentum": 0.9})
    names: Mapping[str, str] = field(default_factory=dict)
    statistics: Mapping[str, str] = field(default_factory=lambda: STATISTICS)

    def ours(self, key: str) -> str:
        """Our name of an entry of PyTorch's state."""
        for end, name in self.statistics.items():
            key = key.replace(end, name)
        layer, dot, rest = key.partition(".")
        return f"{self.names.get(layer, layer)}{dot}{rest}"


def chain(**layers):
    return nn.Sequential(OrderedDict(layers))


def real(*shape: int) -> Array:
    return np.random.default_rng(SEED).standard_normal(shape).astype(np.float32)


def whole(count: int, *shape: int) -> Array:
    return np.random.default_rng(SEED).integers(count, size=shape)


def floats(array: Array):
    return torch.from_numpy(array.astype(np.float64))


def multi_label(folder: Path) -> Case:
    example = import_module("examples.multi_label")
    x, y = real(COUNT, 64), (real(COUNT, 4) > 0).astype(np.float32)
    module = chain(hidden=nn.Linear(64, 48), relu=nn.ReLU(), head=nn.Linear(48, 4))
    fit = partial(mb.fit, example.net, (x, y), loss=mb.binary_cross_entropy_with_logits)
    return Case(fit, module, floats(x), floats(y), F.binary_cross_entropy_with_logits)


def two_outputs(folder: Path) -> Case:
    example = import_module("examples.two_outputs")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense1, self.dense2, self.dense3 = nn.Linear(10, 64), nn.Linear(64, 1), nn.Linear(64, 2)

        def forward(self, features):
            x = F.relu(self.dense1(features))
            return self.dense2(x)[:, 0], self.dense3(x)

    def loss(output, target):
        value, sign = target.T
        return F.mse_loss(output[0], value) + 0.5 * F.cross_entropy(output[1], sign.long())

    x, value = real(COUNT, 10), real(COUNT)
    target = {"value": value, "sign": (value > 0).astype(int)}
    losses = {"value": mb.mse_loss, "sign": mb.cross_entropy}
    fit = partial(mb.fit, example.net, ({"features": x}, target), loss=losses, loss_weights={"sign": 0.5})
    return Case(fit, Net(), floats(x), floats(np.stack(list(target.values()), axis=1)), loss)


def early_stopping(folder: Path) -> Case:
    example = import_module("examples.early_stopping")
    x, y = real(COUNT, 5), 3 * real(COUNT)
    module = chain(hidden=nn.Linear(5, 64), relu=nn.ReLU(), head=nn.Linear(64, 1), flat=nn.Flatten(0))
    return Case(partial(mb.fit, example.net, (x, y), loss=mb.huber_loss), module, floats(x), floats(y), F.huber_loss)


def torch_dataset(folder: Path) -> Case:
    example = import_module("examples.torch_dataset")
    x, y = real(COUNT, 1, 8, 8), torch.from_numpy(whole(10, COUNT))
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(x), y)
    module = chain(
        conv1=nn.Conv2d(1, 16, 3, padding=1), relu=nn.ReLU(), pool=nn.MaxPool2d(2), flat=nn.Flatten(),
        dense1=nn.Linear(256, 10),
    )  # fmt: skip
    return Case(partial(mb.fit, example.net, pairs, normalise="none"), module, floats(x), y)


def own_torch_module(folder: Path) -> Case:
    x, y = real(COUNT, 1, 8, 8), whole(10, COUNT)
    body = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    module = nn.Sequential(*body, nn.Linear(256, 10))
    net = mb.from_torch(module, (torch.zeros(1, 1, 8, 8),))
    return Case(partial(mb.fit, net, (x, y), normalise="none"), module, floats(x), torch.from_numpy(y), statistics={})


def own_cnn_folder(folder: Path) -> Case:
    """Without augmentation, which has random numbers of its own."""
    example = import_module("examples.own_cnn_folder")
    write_digits(folder / "digits")
    data = open_records(folder / "digits/train")
    images, labels = np.empty((data.count, *data.shape), data.dtype), np.empty(data.count, np.int32)
    data.read(np.arange(data.count), images, labels)
    layers = {}
    for i, (before, after) in enumerate([(1, 16), (16, 32)]):
        layers[f"conv{i}"] = nn.Conv2d(before, after, 3, padding=1, bias=False)
        layers |= {f"norm{i}": nn.BatchNorm2d(after), f"relu{i}": nn.ReLU(), f"pool{i}": nn.MaxPool2d(2)}
    module = chain(**layers, flat=nn.Flatten(), head=nn.Linear(32 * 2 * 2, 10))
    x, y = floats((images - images.mean()) / images.std()), torch.from_numpy(labels).long()
    return Case(partial(mb.fit, example.cnn, f"{folder}/digits/train"), module, x, y, update={"lr": 0.02})


def regression_table(folder: Path) -> Case:
    example = import_module("examples.regression_table")
    train = example.friedman(folder) / "train"
    x, y = (floats(array) for array in open_table(open_records(train)).arrays.values())
    fit = partial(mb.fit, example.mlp, str(train), loss=mb.mse_loss)
    return Case(fit, nets.Mlp(10, 64, 2), x, y, F.mse_loss, update=ADAMW)


def segmentation(folder: Path) -> Case:
    example = import_module("examples.segmentation")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.bottom = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.head = nn.Conv2d(16, 2, 1)

        def forward(self, image):
            fine = F.relu(self.down(image))
            coarse = F.relu(self.bottom(F.max_pool2d(fine, 2)))
            return self.head(torch.cat([fine, F.interpolate(coarse, scale_factor=2)], 1))

    image, mask = example.discs(COUNT)
    image = image.astype(np.float32)
    return Case(
        partial(mb.fit, example.net, (image, mask), loss=mb.cross_entropy), Net(), floats(image),
        torch.from_numpy(mask), update={"lr": 0.1},
    )  # fmt: skip


def language_model(folder: Path) -> Case:
    """Of a text that has more windows than the steps take: those of one epoch, all shifted alike."""
    example = import_module("examples.language_model")
    train, context = example.peter(folder) / "train", 32
    windows = open_text(open_records(train), TokenStream(context), training=True)
    assert windows.count >= STEPS * BATCH
    starts = np.arange(windows.count)[:, None] * context + windows.shift(SEED, 0)
    tokens = torch.from_numpy(windows.stream[starts + np.arange(context + 1)].astype(np.int64))
    size = windows.tokens.size
    fit = partial(
        mb.fit, partial(example.net, vocabulary=size), train, loss=partial(mb.cross_entropy, axis=2),
        text={"context": context},
    )  # fmt: skip
    return Case(
        fit, nets.LstmLanguage(size, 64, 1), tokens[:, :-1], tokens[:, 1:],
        lambda output, target: F.cross_entropy(output.transpose(1, 2), target), ADAMW,
        {"characters": "embedding1", "lstm": "lstm1", "head": "dense1"},
    )  # fmt: skip


CASES = [
    multi_label, two_outputs, early_stopping, torch_dataset, own_torch_module, own_cnn_folder, regression_table,
    segmentation, language_model,
]  # fmt: skip


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_20_steps_are_pytorch_s(make: Callable[[Path], Case], tmp_path):
    torch.manual_seed(SEED)
    case = make(tmp_path)
    module = case.module.double().train()
    begun = {case.ours(key): tensor for key, tensor in module.state_dict().items() if not key.endswith(COUNTED)}
    start = {name: tensor.numpy().copy() for name, tensor in begun.items()}
    fitted = case.fit(
        weights=start, batch_size=BATCH, learners=1, update=case.update, seed=SEED, device="numpy",
        precision="float64", stop={"epochs": None, "iterations": STEPS}, out=str(tmp_path / "runs"),
    )  # fmt: skip
    train(module, case)
    assert set(fitted.weights) == set(begun)
    for name, tensor in begun.items():  # which changed in place
        expected = tensor.numpy()
        scale = np.abs(expected).max()
        if expected.ndim > 1:  # a bias before a batch norm has no gradient
            assert np.abs(expected - start[name]).max() > 1e-4 * scale
        assert np.abs(fitted.weights[name] - expected).max() <= TOLERANCE * scale, name


def train(module, case: Case) -> None:
    """Training as PyTorch's users write it, on samples in our order."""
    settings = dict(case.update)
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
    optimiser = kinds[settings.pop("name", "sgd")](module.parameters(), **settings)
    for step in range(STEPS):
        rows = samples_at(step * BATCH, BATCH, len(case.x), SEED)[
            1
        ].copy()  # PyTorch warns of arrays that are read only
        optimiser.zero_grad()
        case.loss(module(case.x[rows]), case.y[rows]).backward()
        optimiser.step()
