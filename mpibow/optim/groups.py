"""Groups of weights that take their own settings of an optimiser, by the patterns that their names match."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, TypeAlias

from mpibow.bounds import NotNegative, Positive, Text
from mpibow.errors import ConfigError
from mpibow.system.command import some

if TYPE_CHECKING:
    from .update import Update

    OwnUpdate: TypeAlias = Update
else:
    OwnUpdate = None  # mpibow.optim puts the optimisers here; their modules import this one


@dataclass(frozen=True)
class Freeze:
    """The weights stay as they are for the first epochs, and are trained from then on."""

    epochs: Annotated[Positive, "epochs from the start"]


@dataclass(frozen=True)
class WeightGroup:
    """Weights whose names match a pattern, as `conv1.*` or `*.bias`; null is as for all others."""

    match: Annotated[Text, "pattern of weights' names, as conv1.* or *.bias"]
    freeze: Annotated[bool | Freeze, "do not train these weights; or not for some epochs, as {epochs: 5}"] = False
    lr_scale: Annotated[Positive, "this factor times the learning rate"] = 1.0
    weight_decay: Annotated[NotNegative | None, "weight decay of these, biases included"] = None
    l1: Annotated[NotNegative | None, "l1 of these, biases included"] = None
    update: Annotated[OwnUpdate | None, "the optimiser of these weights; the schedule applies to it too"] = None

    @property
    def length(self) -> float:
        """For how many epochs from the start its weights are frozen."""
        return self.freeze.epochs if isinstance(self.freeze, Freeze) else math.inf if self.freeze else 0.0

    def __post_init__(self) -> None:
        own = (self.lr_scale, self.weight_decay, self.l1, self.update)
        if self.freeze is True and own != (1.0, None, None, None):
            raise ConfigError("freeze: frozen weights take no step; leave out lr_scale, weight_decay, l1 and update")
        if self.update is not None and not self.update.bare:
            raise ConfigError(
                "update: has no schedule, warmup, clipping, groups or decay_biases of its own; set them beside groups"
            )


def group_of(groups: Sequence[WeightGroup], name: str) -> WeightGroup | None:
    """The first group whose pattern the weight's name matches."""
    return next((group for group in groups if fnmatchcase(name, group.match)), None)


def frozen_for(groups: Sequence[WeightGroup], name: str) -> float:
    """The epochs from the start for which a weight is frozen."""
    own = group_of(groups, name)
    return own.length if own else 0.0


def frozen_of(groups: Sequence[WeightGroup], names: Sequence[str], epoch: float = 0.0) -> list[str]:
    """The names of the weights that are frozen at `epoch`."""
    return [name for name in names if frozen_for(groups, name) > epoch]


def parts_of(groups: Sequence[WeightGroup], names: Sequence[str]) -> dict[str, int]:
    """The number of each weight's part of a replica. A part has one optimiser; parts frozen for longer come later."""
    keys = [_key(groups, name) for name in names]
    order = sorted({(0.0, 0), *keys})
    return {name: order.index(key) for name, key in zip(names, keys, strict=True)}


def trained_parts(groups: Sequence[WeightGroup], names: Sequence[str], epoch: float) -> int:
    """How many of these parts are trained at `epoch`."""
    return sum(length <= epoch for length, _ in {(0.0, 0), *(_key(groups, name) for name in names)})


def _key(groups: Sequence[WeightGroup], name: str) -> tuple[float, int]:
    """The epochs for which a weight is frozen, and the number of its optimiser, 0 without one of its own."""
    own = group_of(groups, name)
    updates = [None, *(group.update for group in groups if group.update is not None)]
    return frozen_for(groups, name), updates.index(own.update if own else None)


def check_groups(groups: Sequence[WeightGroup], names: Sequence[str]) -> None:
    """Raises ConfigError for a pattern that no weight's name matches, and where all weights are frozen."""
    for n, group in enumerate(groups):
        free = [name for name in names if group_of(groups[:n], name) is None]  # the first match wins
        if not any(fnmatchcase(name, group.match) for name in free):
            left = some(free) or "none that the groups before leave"
            raise ConfigError(
                f"update.groups[{n}].match: must match a weight's name, got {group.match!r}; there are {left}"
            )
    if len(frozen_of(groups, names)) == len(names):
        raise ConfigError("update.groups: freeze all weights; leave some to be trained")
