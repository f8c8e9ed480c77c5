"""All loggers by the names that `log.to` has; metrics.jsonl is always written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mpibow.errors import ConfigError, install
from mpibow.run.loggers.logger import Logger
from mpibow.run.loggers.tensorboard import TensorBoard
from mpibow.run.loggers.wandb import Wandb

Open = Callable[[Path, Mapping[str, Any], int], Logger]  # run directory, settings and their text, samples so far


@dataclass(frozen=True)
class Kind:
    """`package` must be there, `extra` of mpibow brings it."""

    open: Open
    package: str
    extra: str


LOGGERS: Mapping[str, Kind] = {
    "tensorboard": Kind(TensorBoard, "tensorboardX", "log"),
    "wandb": Kind(Wandb, "wandb", "wandb"),
}


def check_loggers(names: Sequence[str]) -> None:
    """Raises ConfigError where a package is missing."""
    for name in names:
        kind = LOGGERS.get(name)
        if kind is not None and find_spec(kind.package) is None:
            raise ConfigError(f"log.to: {name} needs the package {kind.package}: {install(kind.extra)}")


def open_loggers(
    names: Sequence[str], folder: Path, settings: Mapping[str, Any], begin: int, note: Callable[[str], None]
) -> dict[str, Logger]:
    """The loggers of `names`, except, with a note, one that can't be opened; a resumed run continues at `begin`."""
    found = dict[str, Logger]()
    for name in dict.fromkeys(names):
        if name not in LOGGERS:
            continue
        try:
            found[name] = LOGGERS[name].open(folder, settings, begin)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            note(f"warning: log.to: {name} could not be opened, metrics.jsonl has all: {text}")
    return found
