"""torchvision's ResNets and VGGs with the names of its state_dicts: its own where it is installed, else as it has them.

torchvision's operators, which its nets do without, are left out: a build for CUDA has none beside PyTorch for CPUs.
"""

import importlib.util
import sys
from collections import OrderedDict
from collections.abc import Sequence
from types import ModuleType

from torch import Tensor, nn

from mpibow.models.vgg import A, D

THERE = importlib.util.find_spec("torchvision") is not None
VGGS = {"vgg_a": ("vgg11", A), "vgg16": ("vgg16", D)}
RESNETS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


def of_torchvision(name: str, classes: int):
    sys.modules.setdefault("torchvision._meta_registrations", ModuleType("torchvision._meta_registrations"))
    from torchvision import models

    theirs, _ = VGGS.get(name, (name, None))
    return getattr(models, theirs)(num_classes=classes)


class Block(nn.Module):
    """BasicBlock, or Bottleneck with `expansion` 4."""

    def __init__(self, inputs: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        outputs = width * expansion
        sizes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        if expansion == 4:
            sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        self.count = len(sizes)
        for i, (before, after, kernel, step) in enumerate(sizes, 1):
            setattr(self, f"conv{i}", nn.Conv2d(before, after, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(after))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = y.relu() if i < self.count else y
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


def resnet(depths: Sequence[int], expansion: int, classes: int) -> nn.Module:
    inputs = 64
    parts = OrderedDict(
        conv1=nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        bn1=nn.BatchNorm2d(64),
        relu=nn.ReLU(),
        maxpool=nn.MaxPool2d(3, 2, 1),
    )
    for stage, depth in enumerate(depths):
        blocks = []
        for i in range(depth):
            blocks.append(Block(inputs, 64 << stage, 2 if stage and i == 0 else 1, expansion))
            inputs = (64 << stage) * expansion
        parts[f"layer{stage + 1}"] = nn.Sequential(*blocks)
    parts |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(inputs, classes)}
    return nn.Sequential(parts)


def vgg(stages: Sequence[Sequence[int]], classes: int) -> nn.Module:
    layers, inputs = [], 3
    for stage in stages:
        for channels in stage:
            layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU()]
            inputs = channels
        layers.append(nn.MaxPool2d(2, 2))
    hidden = [nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
    classifier = nn.Sequential(*hidden, nn.Linear(4096, classes))
    parts = {"features": nn.Sequential(*layers), "avgpool": nn.AdaptiveAvgPool2d(7), "flatten": nn.Flatten()}
    return nn.Sequential(OrderedDict(**parts, classifier=classifier))


def as_torchvision(name: str, classes: int):
    if name in VGGS:
        return vgg(VGGS[name][1], classes)
    return resnet(RESNETS[name], 4 if name == "resnet50" else 1, classes)
