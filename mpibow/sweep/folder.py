"""The folder of a sweep: a file for every cell that has ended, and the run directories of all.

DIR/sweep.json          the ranks of every run
DIR/cells/NAME.json     the result of a run, written whole when it ends
DIR/runs/NAME/          its run directory; an interrupted run is resumed from it
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mpibow.config import Config, build, plain
from mpibow.config.renamed import renamed
from mpibow.config.yaml_text import read
from mpibow.data.aside import content_of
from mpibow.errors import ConfigError, OutputError, RecordError
from mpibow.run import directory
from mpibow.system import JsonObject, parse_object, reason

FORMAT = 1
# Settings that change no number in a run's result.
FREE = ("name", "out", "checkpoint", "log", "limits")


@dataclass(frozen=True)
class CellResult:
    """The result of a cell: the typed settings, all settings, and the run's summary; None if the run diverged."""

    settings: JsonObject
    config: JsonObject
    summary: JsonObject | None
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M"))
    format: int = FORMAT

    def value(self, key: str) -> object:
        """The value of `key.path`: as it was typed, or else in the resolved settings; None where they lack it."""
        if key in self.settings:
            return self.settings[key]
        found: object = self.config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    @property
    def diverged(self) -> bool:
        return self.summary is None


@dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep."""

    folder: Path

    def run(self, name: str) -> Path:
        return self.folder / "runs" / name

    def cell(self, name: str) -> Path:
        return self.folder / "cells" / f"{name}.json"

    def begin(self, ranks: int) -> None:
        """Makes the folder. Raises ConfigError where its runs have another number of ranks."""
        path = self.folder / "sweep.json"
        if path.exists():
            found = _json(path).get("ranks")
            if found != ranks:
                raise ConfigError(f"--ranks: the runs of {self.folder} have {found}, got {ranks}; use another --output")
            return
        for name in ("cells", "runs"):
            try:
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OutputError(f"--output: {self.folder / name} cannot be made: {reason(error)}") from error
        directory.write(path, json.dumps({"format": FORMAT, "ranks": ranks}) + "\n")

    def results(self) -> dict[str, CellResult]:
        """All results so far, by name. Raises RecordError naming a damaged file."""
        return {path.stem: _result(path) for path in sorted((self.folder / "cells").glob("*.json"))}

    def check(self, name: str, config: Config) -> None:
        """Raises ConfigError where a run of that name had other settings."""
        path = self.cell(name)
        if path.exists():
            then = _result(path).config
            remedy = f"delete {path} and {self.run(name)}"
        elif (path := self.run(name) / "config.yaml").exists():
            then = read(path)
            remedy = f"delete {self.run(name)}"
        else:
            return
        if other := different(then, config):
            raise ConfigError(f"{path}: has another {', '.join(other)} than now; use another --output, or {remedy}")

    def prepare(self, name: str, config: Config) -> Path:
        """Writes the settings of a run into its directory, and returns the file."""
        path = self.run(name) / "config.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        directory.write(path, config.text)
        return path

    def finished(self, name: str) -> JsonObject | None:
        """The summary of a run that reached its end; None where there is no summary, or a signal ended the run."""
        path = self.run(name) / "summary.json"
        found = _json(path) if path.exists() else None
        return None if found is None or str(found.get("stopped", "")).startswith("SIG") else found

    def save(self, name: str, result: CellResult) -> None:
        directory.write(self.cell(name), json.dumps(vars(result), indent=1) + "\n")

    @contextmanager
    def locked(self, name: str) -> Iterator[int | None]:
        """A file descriptor that locks the run for its holders; None where another process holds the lock."""
        self.run(name).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.run(name), os.O_RDONLY)
        try:
            held: int | None = descriptor
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held = None
            yield held
        finally:
            os.close(descriptor)


def different(then: Mapping[str, object], config: Config) -> list[str]:
    """The settings outside FREE that differ; a setting that `then` lacks had its default."""
    then = renamed(then)
    try:
        was = plain(build(Config, then))
    except ConfigError:  # of another version
        was = then
    now = plain(config)
    return [name for name in now if name not in FREE and was.get(name) != now[name]]


def _result(path: Path) -> CellResult:
    try:
        result = CellResult(**_json(path))
    except TypeError as error:
        raise RecordError(f"{path}: is not a file of a cell; delete it to run the cell again") from error
    if result.format != FORMAT:
        raise RecordError(f"{path}: must have format {FORMAT}, got {result.format}; use the mpibow that wrote it")
    return result


def _json(path: Path) -> JsonObject:
    try:
        return parse_object(content_of(path))
    except ValueError as error:
        raise RecordError(f"{path}: is damaged: {error}; delete it to run the cell again") from error
