"""Modules that cannot become nets, each for one reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Shared(nn.Module):
    """One convolution at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.conv(x))


class Function(nn.Module):
    """`function(x, training)`."""

    def __init__(self, function: Callable[[Tensor, bool], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor):
        return self.function(x, self.training)


def written(x: Tensor, training: bool) -> Tensor:
    """Writes into a part of a tensor that it reads later."""
    y = x * 2
    y[:, 0] = 0
    return y


def ungraded(x: Tensor, training: bool) -> Tensor:
    with torch.no_grad():
        y = x * 2
    return x + y
