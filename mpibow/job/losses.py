"""The losses that a program gives to `fit`: functions, or names and settings of them."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import numpy as np

from mpibow.config.strict import all_tags, build, record_of, settings_of
from mpibow.config.words import members, show
from mpibow.data.dataset import NamedSamples
from mpibow.data.items import Indexed
from mpibow.errors import ConfigError
from mpibow.job.kinds import classified
from mpibow.job.opening import open_data
from mpibow.models.losses import LossFunction, function_of
from mpibow.models.settings import CrossEntropyLoss, Loss
from mpibow.models.supervised import Losses

KINDS = members(Loss)
KEYS = {setting.name for kind in KINDS for setting in settings_of(kind)} | {"smoothing", "ignore"}


def losses_of(loss: Losses | Mapping[str, Any] | str | None) -> tuple[Losses | None, Any]:
    """The functions, or else the setting `loss` of a config. Raises ConfigError.

    Losses by the names of outputs may be functions, names and settings.
    """
    if callable(loss):
        return loss, None
    if not isinstance(loss, Mapping) or not loss or (set(loss) <= KEYS and not any(map(callable, loss.values()))):
        return None, loss
    return {name: _function(each, f"loss.{name}") for name, each in loss.items()}, None


def of_outputs(source: Any, loss: Loss) -> bool:
    """Whether a net of these data returns outputs to compare with targets: all data but images with classes."""
    if isinstance(source, str | PathLike):
        return not isinstance(loss, CrossEntropyLoss) or not classified(open_data(fspath(source)))
    if not isinstance(source, tuple) or len(source) != 2:
        its_own = isinstance(source, Indexed) and not isinstance(source, str | Mapping)
        return isinstance(source, Mapping | NamedSamples) or (its_own and not isinstance(loss, CrossEntropyLoss))
    inputs, targets = source
    if isinstance(inputs, Mapping) or isinstance(targets, Mapping) or not isinstance(loss, CrossEntropyLoss):
        return True
    found = np.asarray(targets)
    return found.ndim != 1 or not np.issubdtype(found.dtype, np.integer)


def _function(given: Any, path: str) -> LossFunction:
    if callable(given):
        found: LossFunction = given
        return found
    settings = {"name": given} if isinstance(given, str) else given
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{path}: must be a function, a name or settings with a name, got {type(given).__name__}")
    kind = record_of(KINDS, settings, CrossEntropyLoss())
    if kind is None:
        raise ConfigError(f"{path}.name: must be one of {all_tags(KINDS)}, got {show(settings['name'])}")
    return function_of(build(kind, settings, path=path))
