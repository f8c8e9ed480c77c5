"""Small modules at random: for images, sequences and rows, of the layers and functions that users take."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from tests.torch_in.read import First

CLASSES = 3
Draw = Callable[[Any], Any]


def hardsigmoid(x: Tensor) -> Tensor:
    """As nn.Hardsigmoid, whose backward pass in float64 multiplies by 1/6 rounded to float32: 5e-9 off."""
    return F.relu6(x + 3) / 6


ACTIVATIONS = [
    lambda: nn.ReLU(inplace=True), nn.ReLU6, nn.GELU, lambda: nn.GELU("tanh"), nn.SiLU, nn.Sigmoid, nn.Tanh,
    nn.Hardswish, nn.LeakyReLU, lambda: Apart(hardsigmoid), nn.Softplus, nn.Mish, nn.ELU, nn.PReLU,
    nn.LogSigmoid, nn.Softsign,
]  # fmt: skip


class Apart(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Attended(nn.Module):
    """nn.MultiheadAttention of a sequence with itself, with or without the weights that it can give."""

    def __init__(self, width: int, heads: int, need_weights: bool) -> None:
        super().__init__()
        self.attention, self.need_weights = nn.MultiheadAttention(width, heads, batch_first=True), need_weights

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=self.need_weights)[0]


class Drawn(nn.Module):
    """Layers one after the other, then a linear one on all that they give; `shape` is a sample's."""

    def __init__(self, shape: tuple[int, ...], layers: list[nn.Module]) -> None:
        super().__init__()
        self.shape, self.layers = shape, nn.Sequential(*layers)
        with torch.no_grad():
            features = self.layers(torch.zeros(2, *shape)).flatten(1).shape[1]
        for part in self.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                part.reset_running_stats()
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).flatten(1))


def of_images(draw: Draw) -> Drawn:
    channels, layers = 4, []
    c = channels
    for _ in range(draw(st.integers(1, 3))):
        match draw(st.sampled_from(["conv", "depthwise", "dilated", "padded", "transposed", "residual"])):
            case "conv":
                out = draw(st.sampled_from([4, 6]))
                stride, bias = draw(st.integers(1, 2)), draw(st.booleans())
                layers.append(nn.Conv2d(c, out, draw(st.integers(1, 3)), stride, padding=1, bias=bias))
                c = out
            case "depthwise":
                layers.append(nn.Conv2d(c, c, 3, padding="same", groups=c))
            case "dilated":
                layers.append(nn.Conv2d(c, c, 3, padding=2, dilation=2, groups=2))
            case "padded":
                mode = draw(st.sampled_from(["reflect", "replicate", "circular", "zeros"]))
                layers.append(nn.Conv2d(c, c, 3, padding=1, padding_mode=mode))
            case "transposed":
                layers.append(nn.ConvTranspose2d(c, c, 3, 2, padding=1, output_padding=1))
            case "residual":
                layers.append(Residual(nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.Tanh())))
        norms = [
            nn.BatchNorm2d(c), nn.GroupNorm(2, c), nn.InstanceNorm2d(c), nn.Identity(),
            nn.GroupNorm(1, c),
        ]  # fmt: skip
        layers.append(norms[draw(st.integers(0, len(norms) - 1))])
        layers.append(draw(st.sampled_from(ACTIVATIONS))())
    pools = [
        nn.MaxPool2d(3, 2, padding=1), nn.AvgPool2d(2, ceil_mode=True), nn.AdaptiveAvgPool2d(1), nn.Identity(),
        nn.AdaptiveAvgPool2d((3, 2)), nn.Upsample(scale_factor=2), Apart(lambda x: x.mean((2, 3))),
        Apart(lambda x: x.amax((2, 3))), nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelShuffle(1),
    ]  # fmt: skip
    layers.append(pools[draw(st.integers(0, len(pools) - 1))])
    return Drawn((channels, 8, 8), layers)


def of_sequences(draw: Draw) -> Drawn:
    width, layers = 6, []
    for _ in range(draw(st.integers(1, 3))):
        match draw(st.sampled_from(["linear", "lstm", "gru", "attention", "conv1d", "encoder", "parts", "rnn"])):
            case "linear":
                layers += [nn.LayerNorm(width), nn.Linear(width, width, bias=draw(st.booleans()))]
                layers.append(draw(st.sampled_from(ACTIVATIONS))())
            case "lstm":
                layers.append(First(nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)))
            case "gru":
                layers.append(First(nn.GRU(width, width, draw(st.integers(1, 2)), batch_first=True)))
            case "rnn":
                layers.append(First(nn.RNN(width, width, batch_first=True)))
            case "attention":
                layers.append(Residual(Attended(width, 2, draw(st.booleans()))))
            case "conv1d":
                turned = Apart(lambda x: x.transpose(1, 2))
                layers += [turned, nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), turned]
            case "encoder":
                first = draw(st.booleans())
                layers.append(nn.TransformerEncoderLayer(width, 2, 8, 0.0, batch_first=True, norm_first=first))
            case "parts":
                layers.append(Apart(lambda x: torch.cat([part.relu() for part in x.chunk(3, -1)], -1)))
    ends = [
        lambda x: x.mean(1), lambda x: x[:, -1], lambda x: x.flatten(1), lambda x: x[:, 1:3].sum(1),
        lambda x: F.softmax(x, -1).pow(2).sum(1), lambda x: torch.einsum("btf,btg->bfg", x, x),
        lambda x: x.roll(1, 1).std(1), lambda x: torch.where(x > 0, x, 0.1 * x).max(1).values.exp(),
    ]  # fmt: skip
    layers.append(Apart(ends[draw(st.integers(0, len(ends) - 1))]))
    return Drawn((5, width), layers)


def of_rows(draw: Draw) -> Drawn:
    layers = []
    for _ in range(draw(st.integers(1, 3))):
        layers += [nn.Linear(6, 6), draw(st.sampled_from([nn.BatchNorm1d, nn.LayerNorm]))(6)]
        layers.append(draw(st.sampled_from(ACTIVATIONS))())
    functions = [
        lambda x: x.clamp(-0.5, 0.5), lambda x: x / (1 + x.abs()), lambda x: 2 - x.square().add(1).rsqrt(),
        lambda x: F.glu(x), lambda x: F.normalize(x), lambda x: x.unsqueeze(1).expand(-1, 2, -1).reshape(-1, 12),
        lambda x: torch.stack([x, x.flip(1)], 1), lambda x: x.repeat(1, 2), lambda x: x[:, torch.tensor([0, 2, 2])],
        lambda x: x.var(1, keepdim=True) * x, lambda x: torch.maximum(x, x.roll(1, 1)), lambda x: x.logsumexp(1, True),
        lambda x: x.unflatten(1, (2, 3)).permute(0, 2, 1), lambda x: F.log_softmax(x, 1), lambda x: x * x.detach(),
    ]  # fmt: skip
    layers.append(Apart(functions[draw(st.integers(0, len(functions) - 1))]))
    return Drawn((6,), layers)


KINDS = {"images": of_images, "sequences": of_sequences, "rows": of_rows}
