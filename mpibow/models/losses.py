"""Losses by their names in a config file, and their settings."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Literal

from mpibow import ops
from mpibow.bounds import AtLeast, Below, NotEmpty, NotNegative, Positive
from mpibow.errors import ConfigError
from mpibow.graph import Tensor

BALANCED: Literal["balanced"] = "balanced"  # weights of classes by their counts
LossFunction = Callable[..., Tensor]  # output, target -> losses (n,)
IGNORED = -100  # PyTorch's


@dataclass(frozen=True)
class CrossEntropyLoss:
    """Cross-entropy of logits and classes. For data with classes the settings are for training: evaluation is plain."""

    label_smoothing: Annotated[NotNegative, Below(1), "share of the target that is spread evenly over all classes"] = (
        0.0
    )
    ignore_index: Annotated[
        Annotated[int, AtLeast(-(2**31))] | None,
        "label of samples that training and evaluation leave out: a class or, in arrays, a number below 0 such as -100",
    ] = None
    weight: Annotated[
        Literal["balanced"] | Annotated[tuple[NotNegative, ...], NotEmpty()] | None,
        "weight of each class in the mean, one number per class; balanced: by their counts; null: all the same",
    ] = None
    _: KW_ONLY
    name: Literal["cross_entropy"] = "cross_entropy"


@dataclass(frozen=True)
class HuberLoss:
    """Squares of differences up to delta, beyond it their size."""

    delta: Annotated[Positive, "difference above which the loss is linear"] = 1.0
    _: KW_ONLY
    name: Literal["huber_loss"] = "huber_loss"


@dataclass(frozen=True)
class PlainLoss:
    """A loss without settings."""

    _: KW_ONLY
    name: Literal["mse_loss", "l1_loss", "binary_cross_entropy_with_logits"] = "mse_loss"


Loss = CrossEntropyLoss | HuberLoss | PlainLoss


def ignored(loss: Loss) -> int | None:
    """The label of samples that are left out."""
    return loss.ignore_index if isinstance(loss, CrossEntropyLoss) else None


def function_of(settings: Loss) -> LossFunction:
    """`loss(output, target)` of a net that returns outputs. Raises ConfigError where weights are to be counted."""
    function: LossFunction = getattr(ops, settings.name)
    if isinstance(settings, HuberLoss):
        return partial(function, delta=settings.delta)
    if not isinstance(settings, CrossEntropyLoss):
        return function
    if isinstance(settings.weight, str):
        raise ConfigError("loss.weight: balanced is for data with one class per sample; give one number for each class")
    ignore = IGNORED if settings.ignore_index is None else settings.ignore_index
    return partial(function, weight=settings.weight, ignore_index=ignore, label_smoothing=settings.label_smoothing)
