"""The nets as torchvision and the papers' users write them, for PyTorch: what ours are compared with, also in speed."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
Pair = tuple[int, int]


class Block(nn.Module):
    """torchvision's BasicBlock, or Bottleneck where `expansion` is 4."""

    def __init__(self, inputs: int, width: int, stride: int, expansion: int, downsample: nn.Module | None) -> None:
        super().__init__()
        outputs = width * expansion
        if expansion == 4:
            sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        else:
            sizes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(o) for _, o, _, _ in sizes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            if i + 1 < len(self.convs):
                y = F.relu(y, inplace=True)
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def resnet(classes: int, depths: Sequence[int], expansion: int) -> nn.Module:
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for i in range(depth):
            stride = 2 if i == 0 and stage > 0 else 1
            changes = stride != 1 or inputs != width * expansion
            down = projection(inputs, width * expansion, stride) if changes else None
            layers.append(Block(inputs, width, stride, expansion, down))
            inputs = width * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Subsample(nn.Module):
    """Option A of the paper: every second pixel, zeros for the channels that are new."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.channels - x.shape[1]))


def resnet_cifar(classes: int, layers: int, shortcut: str, size: int) -> nn.Module:
    net = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    inputs = 16
    for width in (16, 32, 64):
        for i in range((layers - 2) // 6):
            stride = width // inputs
            down = None
            if stride == 2:
                down = Subsample(width) if shortcut == "identity" else projection(inputs, width, 2)
            elif shortcut == "crossbow" and width == 16 and i == 0:
                down = projection(16, 16, 1)
            net.append(Block(inputs, width, stride, 1, down))
            inputs = width
    crossbow = shortcut == "crossbow"
    net += [nn.AvgPool2d(7, 1) if crossbow else nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*net, nn.Linear(64 * (size // 4 - 6) ** 2 if crossbow else 64, classes))


def conv_relu(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU(inplace=True)]


def head(*widths: int) -> list[nn.Module]:
    """Dense layers, with a relu behind all but the last."""
    layers = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
    return layers[:-1]


def vgg(classes: int, configuration: Sequence[int | str], hidden: int, pixels: int) -> nn.Module:
    layers = []
    inputs = 3
    for entry in configuration:
        if isinstance(entry, str):
            layers.append(nn.MaxPool2d(2, 2))
        else:
            layers += conv_relu(inputs, entry, 3, 1, 1)
            inputs = entry
    return nn.Sequential(*layers, *head(512 * pixels, hidden, hidden, classes))


def vgg16_cifar(classes: int, drops: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> nn.Module:
    """`drops`: in the first stage, in the others, and before each dense layer; 0 leaves the layer out."""
    layers = []
    inputs, (early, late, end) = 3, drops
    for i, entry in enumerate(VGG16):
        if isinstance(entry, str):
            layers.append(nn.MaxPool2d(2, 2))
        else:
            if i and not isinstance(VGG16[i - 1], str):
                layers += dropout(early if entry == 64 else late)
            layers += [*conv_relu(inputs, entry, 3, 1, 1), nn.BatchNorm2d(entry, 1e-3, 0.01)]
            inputs = entry
    layers += [nn.Flatten(), *dropout(end), nn.Linear(512, 512), nn.ReLU(inplace=True), nn.BatchNorm1d(512, 1e-3, 0.01)]
    return nn.Sequential(*layers, *dropout(end), nn.Linear(512, classes))


def dropout(rate: float) -> list[nn.Module]:
    return [nn.Dropout(rate)] if rate else []


VGG11 = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]
VGG16 = [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"]


def alexnet(classes: int, hidden: int, pixels: int) -> nn.Module:
    return nn.Sequential(
        *conv_relu(3, 64, 11, 4, 2),
        nn.MaxPool2d(3, 2),
        *conv_relu(64, 192, 5, 1, 2),
        nn.MaxPool2d(3, 2),
        *conv_relu(192, 384, 3, 1, 1),
        *conv_relu(384, 256, 3, 1, 1),
        *conv_relu(256, 256, 3, 1, 1),
        nn.MaxPool2d(3, 2),
        *head(256 * pixels, hidden, hidden, classes),
    )


def overfeat(classes: int, hidden: Sequence[int], pixels: int) -> nn.Module:
    return nn.Sequential(
        *conv_relu(3, 96, 11, 4),
        nn.MaxPool2d(2, 2),
        *conv_relu(96, 256, 5),
        nn.MaxPool2d(2, 2),
        *conv_relu(256, 512, 3, 1, 1),
        *conv_relu(512, 1024, 3, 1, 1),
        *conv_relu(1024, 1024, 3, 1, 1),
        nn.MaxPool2d(2, 2),
        *head(1024 * pixels, *hidden, classes),
    )


class Branches(nn.Module):
    """Side by side, joined by channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def inception(inputs: int, b1: int, r3: int, b3: int, r5: int, b5: int, b4: int) -> nn.Module:
    return Branches(
        nn.Sequential(*conv_relu(inputs, b1, 1)),
        nn.Sequential(*conv_relu(inputs, r3, 1), *conv_relu(r3, b3, 3, padding=1)),
        nn.Sequential(*conv_relu(inputs, r5, 1), *conv_relu(r5, b5, 5, padding=2)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), *conv_relu(inputs, b4, 1)),
    )


def googlenet(classes: int) -> nn.Module:
    return nn.Sequential(
        *conv_relu(3, 64, 7, 2, 3),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.LocalResponseNorm(5),
        *conv_relu(64, 64, 1),
        *conv_relu(64, 192, 3, 1, 1),
        nn.LocalResponseNorm(5),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        inception(192, 64, 96, 128, 16, 32, 32),
        inception(256, 128, 128, 192, 32, 96, 64),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        inception(480, 192, 96, 208, 16, 48, 64),
        inception(512, 160, 112, 224, 24, 64, 64),
        inception(512, 128, 128, 256, 24, 64, 64),
        inception(512, 112, 144, 288, 32, 64, 64),
        inception(528, 256, 160, 320, 32, 128, 128),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        inception(832, 256, 160, 320, 32, 128, 128),
        inception(832, 384, 192, 384, 48, 128, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1024, classes),
    )


def basic(inputs: int, outputs: int, kernel: int | Pair = 1, stride: int = 1, padding: int | Pair = 0) -> nn.Module:
    """torchvision's BasicConv2d."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, eps=0.001), nn.ReLU(inplace=True))


def inception_a(inputs: int, pool: int) -> nn.Module:
    return Branches(
        basic(inputs, 64),
        nn.Sequential(basic(inputs, 48), basic(48, 64, 5, 1, 2)),
        nn.Sequential(
            basic(inputs, 64),
            basic(64, 96, 3, 1, 1),
            basic(96, 96, 3, 1, 1),
        ),
        nn.Sequential(nn.AvgPool2d(3, 1, 1), basic(inputs, pool)),
    )


def inception_b(inputs: int) -> nn.Module:
    return Branches(
        basic(inputs, 384, 3, 2),
        nn.Sequential(
            basic(inputs, 64),
            basic(64, 96, 3, 1, 1),
            basic(96, 96, 3, 2),
        ),
        nn.MaxPool2d(3, 2),
    )


def inception_c(c7: int) -> nn.Module:
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    return Branches(
        basic(768, 192),
        nn.Sequential(basic(768, c7), basic(c7, c7, *row), basic(c7, 192, *column)),
        nn.Sequential(
            basic(768, c7),
            basic(c7, c7, *column),
            basic(c7, c7, *row),
            basic(c7, c7, *column),
            basic(c7, 192, *row),
        ),
        nn.Sequential(nn.AvgPool2d(3, 1, 1), basic(768, 192)),
    )


def inception_d() -> nn.Module:
    return Branches(
        nn.Sequential(basic(768, 192), basic(192, 320, 3, 2)),
        nn.Sequential(
            basic(768, 192),
            basic(192, 192, (1, 7), 1, (0, 3)),
            basic(192, 192, (7, 1), 1, (3, 0)),
            basic(192, 192, 3, 2),
        ),
        nn.MaxPool2d(3, 2),
    )


def inception_e(inputs: int) -> nn.Module:
    def both() -> nn.Module:
        return Branches(basic(384, 384, (1, 3), 1, (0, 1)), basic(384, 384, (3, 1), 1, (1, 0)))

    return Branches(
        basic(inputs, 320),
        nn.Sequential(basic(inputs, 384), both()),
        nn.Sequential(basic(inputs, 448), basic(448, 384, 3, 1, 1), both()),
        nn.Sequential(nn.AvgPool2d(3, 1, 1), basic(inputs, 192)),
    )


def inception_v3(classes: int) -> nn.Module:
    return nn.Sequential(
        basic(3, 32, 3, 2),
        basic(32, 32, 3),
        basic(32, 64, 3, 1, 1),
        nn.MaxPool2d(3, 2),
        basic(64, 80),
        basic(80, 192, 3),
        nn.MaxPool2d(3, 2),
        inception_a(192, 32),
        inception_a(256, 64),
        inception_a(288, 64),
        inception_b(288),
        *[inception_c(c7) for c7 in (128, 160, 160, 192)],
        inception_d(),
        inception_e(1280),
        inception_e(2048),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2048, classes),
    )


def lenet(classes: int, drop: float = 0.4) -> nn.Module:
    convolutions = nn.Conv2d(1, 32, 5), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.MaxPool2d(2)
    return nn.Sequential(*convolutions, *head(1024, 1024), nn.ReLU(), *dropout(drop), nn.Linear(1024, classes))


def convnet(classes: int) -> nn.Module:
    convolutions = *conv_relu(1, 16, 3, 1, 1), *conv_relu(16, 32, 3, 1, 1)
    return nn.Sequential(*convolutions, nn.MaxPool2d(2), *head(32 * 16, classes))


def convnet3(classes: int, norm: str) -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        own = nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(outputs // 8, outputs)
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), own, nn.ReLU()]

    pooled = [*block(16, 32), nn.MaxPool2d(2), *block(32, 64), nn.MaxPool2d(2)]
    return nn.Sequential(*block(3, 16), *pooled, nn.Flatten(), nn.Linear(64 * 4, classes))


def mlp(classes: int, hidden: Sequence[int] = (256,)) -> nn.Module:
    return nn.Sequential(*head(784, *hidden, classes))


def logistic(classes: int) -> nn.Module:
    return nn.Sequential(*head(784, classes))
