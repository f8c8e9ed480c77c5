"""Loggers send a run's numbers to the programs in `log.to`, beside metrics.jsonl."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from mpibow.errors import ConfigError, install
from mpibow.system import JsonObject

TRAINING = ("loss", "accuracy", "rate", "gain", "distance", "images_per_second", "data_wait", "sync_wait")
ENTRIES = {"event", "learners", "time", "name", "iteration", "position", "epoch"}  # of every event of a callback
FLUSH = 10  # seconds


class Logger(Protocol):
    """`add` gets numbers by name, and how many samples the run had consumed."""

    def add(self, numbers: Mapping[str, float], samples: int) -> None: ...
    def close(self) -> None: ...


def numbers_of(event: str, entries: JsonObject) -> dict[str, float]:
    """The numbers of an event of metrics.jsonl by names such as training/loss, validation/accuracy; {} for others."""
    if event == "train":
        named = {key: entries.get(key) for key in TRAINING}
        return _finite("training", named | {"learners": sum(entries["learners"])})
    if event == "callback":
        return _finite(str(entries["name"]), {key: entries[key] for key in entries if key not in ENTRIES})
    if event not in ("evaluate", "average"):
        return {}
    data = entries["data"]
    place = f"average/{data}" if event == "average" else f"best/{data}" if "checkpoint" in entries else data
    named = {key: entries.get(key) for key in ("loss", "accuracy", "top_k_accuracy")} | dict(entries.get("metrics", {}))
    return _finite(place, named)


def _finite(place: str, named: JsonObject) -> dict[str, float]:
    return {
        f"{place}/{name}": float(value)
        for name, value in named.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


class TensorBoard:
    """Steps are samples, so that runs with other numbers of learners lie over each other.

    A run that is continued at sample `begin` takes back what was written behind it.
    """

    package = "tensorboardX"
    extra = "log"

    def __init__(self, folder: Path, settings: JsonObject, begin: int):
        from tensorboardX import SummaryWriter

        purge = {"purge_step": begin + 1} if begin else {}
        self._writer = SummaryWriter(
            str(folder), flush_secs=FLUSH, write_to_disk=True, filename_suffix=f".{begin:012d}", **purge
        )  # without a suffix, a run that is continued within a second would write over its file
        if not begin:
            self._writer.add_text("settings", "\n".join(f"    {line}" for line in str(settings["text"]).splitlines()))

    def add(self, numbers: Mapping[str, float], samples: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, samples)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A run of the name of the run directory; one that is continued goes on there. Its x axis is samples."""

    package = extra = "wandb"

    def __init__(self, folder: Path, settings: JsonObject, begin: int):
        import wandb

        self._run = wandb.init(
            dir=str(folder),
            name=folder.resolve().name,
            id=hashlib.sha256(bytes(folder.resolve())).hexdigest(),
            config={key: value for key, value in settings.items() if key != "text"},
            resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("samples")
        self._run.define_metric("*", step_metric="samples")

    def add(self, numbers: Mapping[str, float], samples: int) -> None:
        self._run.log({**numbers, "samples": samples})

    def close(self) -> None:
        self._run.finish()


# By name; `package` of each must be there, `extra` of mpibow brings it.
LOGGERS: Mapping[str, type[TensorBoard | Wandb] | None] = {
    "jsonl": None,  # the run itself writes metrics.jsonl, always
    "tensorboard": TensorBoard,
    "wandb": Wandb,
}
Open = Callable[[Path, JsonObject, int], Logger]  # run directory, settings and their text, samples so far


def check_loggers(names: Sequence[str]) -> None:
    """Raises ConfigError where a package is missing."""
    for name in names:
        kind = LOGGERS[name]
        if kind is not None and find_spec(kind.package) is None:
            raise ConfigError(f"log.to: {name} needs the package {kind.package}: {install(kind.extra)}")


class Loggers:
    """Loggers of a run by `names`; one that is resumed continues at sample `begin`.

    One that fails is left out from there on, with a note, and the run goes on.
    """

    def __init__(
        self,
        names: Sequence[str],
        folder: Path,
        settings: JsonObject,
        begin: int,
        note: Callable[[str], None],
        kinds: Mapping[str, Open | None] = LOGGERS,
    ):
        self._loggers = dict[str, Logger]()
        self._note = note
        for name in dict.fromkeys(names):
            if (opened := kinds[name]) is not None:
                with self._noted(name, "could not be opened,"):
                    self._loggers[name] = opened(folder, settings, begin)

    def add(self, event: str, **entries: Any) -> None:
        if self._loggers and (numbers := numbers_of(event, entries)):
            self._each(lambda logger: logger.add(numbers, int(entries["position"])))

    def close(self) -> None:
        self._each(lambda logger: logger.close())

    def _each(self, function: Callable[[Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            with self._noted(name, "failed and gets nothing more,"):
                function(logger)

    @contextmanager
    def _noted(self, name: str, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._loggers.pop(name, None)
            self._note(f"warning: log.to: {name} {what} metrics.jsonl has all: {type(error).__name__}: {error}")
