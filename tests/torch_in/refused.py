"""Modules that cannot become nets, each for one reason."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Shared(nn.Module):
    """One convolution at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.conv(x))  # type: ignore[no-any-return]


class Branch(nn.Module):
    """What it does depends on the data."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Fixed(nn.Module):
    """It takes batches of two."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(2, 4) * 2


class Written(nn.Module):
    """Writes into a part of a tensor that it reads later."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        y[:, 0] = 0
        return y


class Ungraded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x * 2
        return x + y


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.ones(3)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(4)


class Scaled(nn.Module):
    """Twice as much in training."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if self.training else x


class Auxiliary(nn.Module):
    """One output more in training."""

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return (x * 2, x * 3) if self.training else x * 2
