"""Modules that take tensors by name and give their own loss, as transformers' do; a user's own operators."""

from typing import Any

import numpy as np
import pytest

import mpibow as mb
from mpibow.data import NamedArrays
from mpibow.errors import ConfigError
from tests.oracle import pytorch

pytestmark = pytest.mark.torch
torch = pytorch()
nn = torch.nn
F = torch.nn.functional

WORDS, LENGTH, COUNT, STEPS = 11, 6, 4, 3


class Language(nn.Module):
    """Predicts the next token: a mask of the future, padding, and the loss of labels that count."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8), nn.Embedding(LENGTH, 8)
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, WORDS, bias=False)
        self.head.weight = self.words.weight
        self.places.requires_grad_(False)

    def forward(self, tokens, mask=None, labels=None) -> dict[str, Any]:
        batch, length = tokens.shape
        x = self.words(tokens) + self.places(torch.arange(length).expand(batch, -1))
        seen = torch.ones(batch, length) if mask is None else mask
        future = torch.full((length, length), float("-inf")).triu(1)
        hidden = future[None].expand(batch, -1, -1) + (1.0 - seen[:, None, :].to(torch.float32)) * -1e9
        q, k, v = self.qkv(x).chunk(3, -1)
        y = torch.softmax((q @ k.transpose(1, 2) + hidden).float(), -1).to(x.dtype) @ v
        logits = self.head(x + y)
        if labels is None:
            return {"logits": logits}
        moved = F.pad(labels, (0, 1), value=-100)[:, 1:]
        return {"loss": F.cross_entropy(logits.float().view(-1, WORDS), moved.reshape(-1)), "logits": logits}


def samples() -> dict[str, Any]:
    torch.manual_seed(1)
    tokens = torch.randint(WORDS, (COUNT, LENGTH))
    mask = (torch.arange(LENGTH) < torch.tensor([[6], [4], [5], [6]])).long()
    return {"tokens": tokens, "mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}


def test_batches_of_several_lengths(tmp_path):
    """Read once for each length; the weights are those of a net that computes nearly all batches at full length."""
    draw = np.random.default_rng(0)
    rows = [draw.integers(0, WORDS, draw.integers(1, LENGTH + 1)).tolist() for _ in range(32)]
    data = {"tokens": rows, "mask": [[1] * len(row) for row in rows], "labels": rows}
    settings = {"batch_size": COUNT, "learners": 1, "device": "numpy", "precision": "float64", "stop": {"epochs": 2}}
    weights = []
    for lengths in ((2, 4), (LENGTH - 1,)):
        torch.manual_seed(0)
        net = mb.from_torch(Language(), samples(), lengths=lengths)
        padding = {"tokens": 0, "mask": 0, "labels": -100}
        fitted = mb.fit(net, data, padding=padding, out=str(tmp_path / str(lengths)), **settings)
        weights.append(fitted.weights)
    for name, array in weights[0].items():
        np.testing.assert_allclose(array, weights[1][name], rtol=1e-9, atol=1e-12)
    with pytest.raises(ConfigError, match=f"lengths must be from 1 to {LENGTH - 1}"):
        mb.from_torch(Language(), samples(), lengths=(LENGTH,))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return mb.from_torch(Language(), samples())


class Items:
    """A data set in Hugging Face's form, with a column that is no number."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"text": "words"} | {name: column[number].tolist() for name, column in self.columns.items()}


def arrays() -> dict[str, Any]:
    return {name: tensor.int().numpy() for name, tensor in samples().items()}


@pytest.mark.parametrize("form", ["columns", "items"])
def test_its_own_loss_trains_as_in_pytorch(net, form, tmp_path):
    data: Any = arrays() | {"more": np.zeros(COUNT)}
    if form == "items":
        data = Items({**{name: data[name] for name in ("tokens", "mask")}, "label": data["labels"]})
    update = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
    fitted = mb.fit(
        net, data, batch_size=COUNT, learners=1, update=update, stop={"epochs": STEPS}, device="numpy",
        precision="float64", out=str(tmp_path),
    )  # fmt: skip
    torch.manual_seed(0)
    module = Language().double()
    trained = [each for each in module.parameters() if each.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimiser.zero_grad()
        module(**samples())["loss"].backward()
        optimiser.step()
    state = module.state_dict()
    for name, array in fitted.weights.items():
        wanted = state[name].numpy()
        assert np.abs(array - wanted).max() <= 1e-6 * np.abs(wanted).max(), name  # its loss is in float32
    back = fitted.to_torch()
    assert back.head.weight is back.words.weight
    with torch.no_grad():
        logits = back.double()(**{name: samples()[name] for name in ("tokens", "mask")})["logits"].numpy()
    found = fitted.predict({name: arrays()[name] for name in ("tokens", "mask")})
    np.testing.assert_allclose(found, logits, rtol=0, atol=1e-6)


def test_outputs_by_name_without_labels():
    given = samples()
    net = mb.from_torch(Language(), {"mask": given["mask"], "tokens": given["tokens"]})
    assert (net.inputs, net.outputs) == (("tokens", "mask"), ("logits",))


class Rows(nn.Module):
    """A convolution at two places, and of each sample the row that is largest."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = (
            nn.Conv1d(2, 2, 3, padding=1),
            nn.BatchNorm1d(2, affine=False),
            nn.Linear(4, 3),
        )

    def forward(self, x):
        y = self.norm(self.conv(self.conv(x))).unflatten(2, (-1, 4)).flatten(1, 2)
        return self.head(y[torch.arange(x.shape[0]), y.sum(2).argmax(1)])


def test_rows_of_the_batch_are_saved(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(9, 2, 8)
    data = (x.numpy(), np.arange(9, dtype=np.int32) % 3)
    settings = {"batch_size": 4, "learners": 2, "stop": {"epochs": 1}, "out": str(tmp_path), "normalise": "none"}
    fitted = mb.fit(mb.from_torch(Rows(), (x,)), data, loss=mb.cross_entropy, **settings)
    fitted.save(tmp_path / "net.safetensors")
    loaded = mb.load(tmp_path / "net.safetensors").predict(data[0], batch_size=5)
    with torch.no_grad():
        wanted = fitted.to_torch().eval()(x).numpy()
    np.testing.assert_allclose(loaded, wanted, rtol=0, atol=1e-5)


class Own(nn.Module):
    """Gives its own loss, `of` outputs (n, 4, 5), numbers and labels (n, 5)."""

    def __init__(self, of) -> None:
        super().__init__()
        self.body, self.of = nn.Linear(8, 20), of

    def forward(self, x, y, labels) -> dict[str, Any]:
        made = self.body(x).view(-1, 4, 5)
        return {"made": made, "loss": self.of(made, y, labels, self.body.weight)}


LOSSES = {
    "squares": lambda made, y, labels, w: F.mse_loss(made, y),
    "with a penalty": lambda made, y, labels, w: F.mse_loss(made, y) * 0.5 + w.square().sum(),
    "root": lambda made, y, labels, w: F.mse_loss(made, y).sqrt(),
    "pairs": lambda made, y, labels, w: F.cross_entropy(made[:, 0] @ y[:, 0].T, torch.arange(made.shape[0])),
    "a number times": lambda made, y, labels, w: F.cross_entropy(made, labels) / 3,
    "with another": lambda made, y, labels, w: F.cross_entropy(made, labels) + F.mse_loss(made, y),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_its_loss_in_evaluation_is_pytorchs(loss, tmp_path):
    """Of all samples, also where the last batch is not full, and where few labels count, and of some samples none."""
    torch.manual_seed(0)
    x, y, labels = torch.randn(7, 8), torch.randn(7, 4, 5), torch.randint(4, (7, 5))
    labels[torch.rand(7, 5) < 0.7], labels[2] = -100, -100
    module = Own(LOSSES[loss])
    net = mb.from_torch(module, {"x": x[:4], "y": y[:4], "labels": labels[:4]})
    data = {"x": x.numpy(), "y": y.numpy(), "labels": labels.numpy().astype(np.int32)}
    still = {"batch_size": 4, "learners": 1, "stop": {"epochs": 1}, "update": {"lr": 1e-12}, "out": str(tmp_path)}
    fitted = mb.fit(net, data, test=data, evaluate={"batch_size": 4}, **still)
    with torch.no_grad():
        parts = [module(x[a:b], y[a:b], labels[a:b])["loss"].item() for a, b in ((0, 4), (4, 7))]
    counts = (4, 3) if loss != "a number times" else [(labels[a:b] != -100).sum().item() for a, b in ((0, 4), (4, 7))]
    assert fitted.summary.test_loss == pytest.approx(np.average(parts, weights=counts), rel=1e-5)


MIXING = {
    "norm": lambda: nn.BatchNorm1d(8, track_running_stats=False),
    "scaled": lambda: Rest(lambda x: x / (x.std(0) + 1)),
    "centred": lambda: Rest(lambda x: x - x.mean(0)),
    "turned": lambda: Rest(lambda x: x.flip(0)),
    "shares": lambda: Rest(lambda x: x.softmax(0)),
    "ranks": lambda: Rest(lambda x: x - x.max(0)[0].detach()),
}


class Rest(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("kind", MIXING)
def test_samples_that_mix_are_computed_by_themselves(kind, tmp_path):
    """Batches that are not full have no others beside them, in predict and in evaluation."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 8), MIXING[kind]()).eval()
    x, y = torch.randn(7, 8), torch.randn(7, 8)
    still = {"batch_size": 4, "learners": 1, "stop": {"epochs": 1}, "update": {"lr": 1e-12}, "out": str(tmp_path)}
    data = (x.numpy(), y.numpy())
    net = mb.from_torch(module, (x[:4],))
    fitted = mb.fit(net, data, data, loss="mse_loss", evaluate={"batch_size": 4}, **still)
    with torch.no_grad():
        wanted = torch.cat([module(x[:4]), module(x[4:])])
        assert not np.isnan(fitted.predict(np.zeros((3, 8)))).any()  # zeros beside zeros tell nothing
        np.testing.assert_allclose(fitted.predict(data[0], batch_size=4), wanted, rtol=0, atol=1e-5)
        for count in (2, 3, 5):
            np.testing.assert_allclose(fitted.predict(data[0][:count]), module(x[:count]), rtol=0, atol=1e-5)
    assert fitted.predict(data[0][:0]).shape == (0, 8)
    assert fitted.summary.test_loss == pytest.approx(F.mse_loss(wanted, y).item(), rel=1e-5)
    if kind != "scaled":  # its divisor is no multiple of the batch size, so that it cannot be saved
        fitted.save(tmp_path / "net")
        np.testing.assert_array_equal(mb.load(tmp_path / "net").predict(data[0]), fitted.predict(data[0]))


def test_logsumexp_of_a_row_that_is_hidden(tmp_path):
    module = nn.Sequential(nn.Linear(8, 8), Rest(lambda x: x.masked_fill(x > 5, -torch.inf).logsumexp(1)))
    net, x = mb.from_torch(module, (torch.randn(4, 8),)), np.zeros((4, 8), np.float32)
    data, still = (x, x[:, 0]), {"stop": {"iterations": 1}, "update": {"lr": 1e-12}, "out": str(tmp_path)}
    fitted = mb.fit(net, data, loss="mse_loss", learners=1, batch_size=4, **still)
    fitted.weights["0.bias"][:] = 9
    assert fitted.predict(x).tolist() == [-np.inf] * 4


def test_arrays_that_a_loss_does_not_take(tmp_path):
    module = nn.Sequential(nn.Linear(8, 8), Rest(lambda x: {"loss": (x * x).mean()}))
    data = NamedArrays(dict.fromkeys(("input", "more"), np.ones((4, 8))))
    net = mb.from_torch(module, (torch.randn(4, 8),))
    assert mb.fit(net, data, batch_size=2, stop={"iterations": 1}, out=str(tmp_path)).summary.iterations == 1


def test_a_norm_in_two_places_is_refused():
    norm = nn.BatchNorm1d(8)
    with pytest.raises(ConfigError, match="its batch norm is used twice; give each place its own"):
        mb.from_torch(nn.Sequential(nn.Linear(8, 8), norm, nn.ReLU(), norm), (torch.randn(4, 8),))


class Bent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        return torch.atan(self.body(x)) * torch.digamma(x.abs() + 1)


def test_all_that_lacks_is_named_at_once():
    with pytest.raises(ConfigError) as raised:
        mb.from_torch(Bent(), (torch.randn(2, 4),))
    lines = str(raised.value).splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == ["atan", "digamma"]


def test_operators_of_a_users_own():
    atan = mb.operator("atan", np.arctan, lambda x, y, dy: dy / (1 + x * x))
    digamma = mb.operator("digamma", lambda x: np.vectorize(_digamma)(x))
    assert mb.from_torch(Bent(), (torch.randn(2, 4),), operators={"atan": atan, "digamma": digamma}).outputs
    wrong = mb.operator("atan", np.arctan, lambda x, y, dy: dy / (2 + x * x))
    with pytest.raises(ConfigError, match=r"another gradient of body\.weight"):
        mb.from_torch(Bent(), (torch.randn(2, 4),), operators={"atan": wrong, "digamma": digamma})


def _digamma(x: float) -> float:
    return float(torch.digamma(torch.tensor(x, dtype=torch.float64)))
