"""Losses by their names in a config file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mpibow.errors import ConfigError
from mpibow.graph.graph import Tensor
from mpibow.models.settings import CrossEntropyLoss, HuberLoss, Loss
from mpibow.ops import binary_cross_entropy_with_logits, cross_entropy, huber_loss, l1_loss, mse_loss

LossFunction = Callable[..., Tensor]  # output, target -> losses (n,)
LOSSES: Mapping[str, LossFunction] = {
    "cross_entropy": cross_entropy,
    "mse_loss": mse_loss,
    "l1_loss": l1_loss,
    "huber_loss": huber_loss,
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
}
IGNORED = -100  # PyTorch's


def function_of(settings: Loss) -> LossFunction:
    """`loss(output, target)` of a net that returns outputs. Raises ConfigError where weights are to be counted."""
    function = LOSSES[settings.name]
    if isinstance(settings, HuberLoss):
        return partial(function, delta=settings.delta)
    if not isinstance(settings, CrossEntropyLoss):
        return function
    if isinstance(settings.weight, str):
        raise ConfigError("loss.weight: balanced is for data with one class per sample; give one number for each class")
    ignore = IGNORED if settings.ignore_index is None else settings.ignore_index
    return partial(function, weight=settings.weight, ignore_index=ignore, label_smoothing=settings.label_smoothing)
