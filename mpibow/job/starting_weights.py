"""Trained weights that a new run starts from, matched to a net's weights by name and shape."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np

from mpibow.config import Config, build
from mpibow.config.schema import Weights
from mpibow.data import numeric_array
from mpibow.errors import ConfigError
from mpibow.graph import Array, ArraysByName, Shape
from mpibow.models.torchvision import COUNTED, STATISTICS, names_of
from mpibow.system import StrPath
from mpibow.system.command import some

KEYS = {theirs: ours for ours, theirs in STATISTICS.items()}


class HasWeights(Protocol):
    """An object with weights by name, as `fit` returns it."""

    @property
    def weights(self) -> ArraysByName: ...


Arrays = Mapping[str, Any]  # by name; or settings beside `file`, which may be any of these
Start = StrPath | HasWeights | Arrays


@dataclass(frozen=True)
class StartingWeights:
    """The value of `key`, `model.weights` or `fit(weights=...)`; `arrays` where they are in memory."""

    weights: Weights
    key: str = "model.weights"
    arrays: ArraysByName | None = None

    @property
    def source(self) -> str:
        """Its name in messages."""
        return self.weights.file if self.arrays is None else "the program's arrays"

    def remedy(self, setting: str, value: list[str] | bool) -> str:
        """The line to type for this setting."""
        if self.key == "model.weights":
            return f"model.weights={{file: {self.weights.file}, {setting}: {json.dumps(value)}}}"
        file = json.dumps(self.weights.file) if self.arrays is None else "..."
        return f'weights={{"file": {file}, "{setting}": {value if isinstance(value, bool) else json.dumps(value)}}}'


def of_config(config: Config) -> StartingWeights | None:
    """From the setting `model.weights`."""
    found = None if config.model is None else config.model.weights
    return StartingWeights(Weights(found) if isinstance(found, str) else found) if found is not None else None


def of_program(weights: Start) -> StartingWeights:
    """From the argument `fit(weights=...)`. Raises ConfigError."""
    if isinstance(weights, Mapping) and "file" in weights:
        inner = of_program(weights["file"])
        return StartingWeights(
            build(Weights, {**weights, "file": inner.weights.file}, path="weights"), "weights", inner.arrays
        )
    if isinstance(weights, str | os.PathLike):
        return StartingWeights(build(Weights, {"file": weights}, path="weights"), "weights")
    arrays = weights if isinstance(weights, Mapping) else getattr(weights, "weights", None)
    if not isinstance(arrays, Mapping):
        kinds = "a run, a checkpoint or a file by its path, a trained net, or arrays by name"
        raise ConfigError(f"weights: must be {kinds}, got {type(weights).__name__}")
    arrays = {**arrays, **getattr(weights, "buffers", {})}
    return StartingWeights(
        Weights("arrays"), "weights", {name: numeric_array(f"weights: {name}", array) for name, array in arrays.items()}
    )


@dataclass(frozen=True)
class LoadedWeights:
    """The arrays that a net takes, by its names; the names of the others, on both sides.

    `excluded` are the net's that were not asked for, `missing` the net's that the source lacks, `unexpected` the
    source's that the net lacks, `skipped` the source's that were not asked for.
    """

    source: str
    arrays: ArraysByName
    excluded: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """A line for the log."""
        whole = len(self.arrays) + len(self.excluded) + len(self.missing)
        parts = [f"{len(self.arrays)} of the net's {whole} weights and statistics are loaded"]
        for text, names in (
            ("start anew", self.excluded),
            ("are missing there and start anew", self.missing),
            ("are not in the net", self.unexpected),
            ("are left out", tuple(name for name in self.skipped if name not in self.excluded)),
        ):
            if names:
                parts.append(f"{some(names)} {text}")
        return f"weights from {self.source}: {'; '.join(parts)}"

    def entries(self) -> dict[str, object]:
        """The content of the run directory's weights.json."""
        others = {name: list(names) for name, names in vars(self).items() if name not in ("source", "arrays")}
        return {"source": self.source, "loaded": list(self.arrays), **others}


def take(given: StartingWeights, stored: ArraysByName, shapes: Mapping[str, Shape]) -> LoadedWeights:
    """The arrays of `stored` for a net whose weights and statistics have these shapes by name.

    Raises ConfigError naming the misfit and its remedy.
    """
    settings = given.weights
    where = f"{given.key}: {given.source}"
    found = renamed(given, stored, shapes)
    for pattern in (*_patterns(settings.match), *_patterns(settings.exclude)):
        if not any(fnmatchcase(name, pattern) for name in (*shapes, *found)):
            raise ConfigError(f"{given.key}: no weight's name matches '{pattern}'; there are {some([*shapes])}")
    wanted = [name for name in shapes if _asked(settings, name)]
    if not wanted:
        raise ConfigError(
            f"{given.key}: match and exclude leave none of the net's weights to load; there are {some([*shapes])}"
        )
    skipped = tuple(name for name in found if not _asked(settings, name))
    missing = tuple(name for name in wanted if name not in found)
    unexpected = tuple(name for name in found if name not in shapes and name not in skipped)
    taken = {name: found[name] for name in wanted if name in found}
    if not taken:
        raise ConfigError(
            f"{where}: has none of the net's weights; it has {some([*found])}, the net has {some(wanted)}"
        )
    if other := [name for name, array in taken.items() if array.shape != shapes[name]]:
        lines = [f"  {name}: is {taken[name].shape} there, {shapes[name]} in this net" for name in other]
        nodes = dict.fromkeys(f"{name.rpartition('.')[0]}.*" for name in other)
        exclude = [*_patterns(settings.exclude), *nodes]
        raise ConfigError(
            "\n".join(
                [f"{where}: has other shapes; to start these anew type {given.remedy('exclude', exclude)}", *lines]
            )
        )
    if settings.strict and (missing or unexpected):
        faults = [f"lacks {some(missing)} of the net"] * bool(missing)
        faults += [f"has {some(unexpected)}, which the net lacks"] * bool(unexpected)
        raise ConfigError(f"{where}: {'; it '.join(faults)}; to load the others type {given.remedy('strict', False)}")
    for name, array in taken.items():
        if array.dtype.kind != "f":
            raise ConfigError(f"{where}: {name}: must be floating point, got {array.dtype}")
        if not np.isfinite(array).all():
            raise ConfigError(f"{where}: {name}: has values that are not finite")
    excluded = tuple(name for name in shapes if name not in wanted)
    return LoadedWeights(given.source, taken, excluded, missing, unexpected, skipped)


def renamed(given: StartingWeights, stored: ArraysByName, shapes: Mapping[str, Shape]) -> dict[str, Array]:
    """`stored` under the net's names, where it has PyTorch's: torchvision's of its nets, a batch norm's statistics.

    PyTorch's count of a batch norm's batches is left out. Raises ConfigError where torchvision's names are asked for,
    and the net is none of its.
    """
    names = names_of(shapes)
    if given.weights.names == "torchvision" and names is None:
        raise ConfigError(f"{given.key}.names: torchvision has no net of this net's weights; leave names out")
    if given.weights.names == "mpibow":
        return dict(stored)
    ours = {} if names is None else {theirs: own for own, theirs in names.theirs.items()}
    if sum(name in ours for name in stored) <= sum(name in shapes for name in stored):
        ours = {}
    found = {}
    for name, array in stored.items():
        node, dot, key = name.rpartition(".")
        if key != COUNTED or name in shapes:
            found[ours.get(name) or (name if name in shapes else f"{node}{dot}{KEYS.get(key, key)}")] = array
    return found


def _asked(settings: Weights, name: str) -> bool:
    return _matches(name, settings.match) and not _matches(name, settings.exclude)


def _matches(name: str, given: str | tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _patterns(given))


def _patterns(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given
