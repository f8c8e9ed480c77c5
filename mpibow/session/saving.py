"""Saving: a run's state on disk, and which checkpoints are kept."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mpibow.errors import ShapeError
from mpibow.graph.graph import Array
from mpibow.job.document import Document, saved
from mpibow.run import checkpoint, checkpoints, directory, lock
from mpibow.session.given import FIRST
from mpibow.session.opening import Parts
from mpibow.session.where import Where


class Saver:
    """Every rank has one and calls it alike. `last` is the checkpoint that was written last, or is continued."""

    def __init__(self, parts: Parts, rank: int) -> None:
        self._parts, self._settings, self._rank = parts, parts.job.config.checkpoint, rank
        self.last: Path | None = parts.start.source.checkpoint
        self._document, self._inputs = self._net()
        self._agreed = time.perf_counter()

    def _net(self) -> tuple[Document | None, dict[str, Array]]:
        """The net as JSON, and its arrays that are too long for JSON: the net's, the data's, the first statistics."""
        scaling = self._parts.job.scaling
        inputs = {} if scaling is None else scaling.arrays()
        if (first := self._parts.start.first) is not None:
            inputs |= {FIRST: first}
        try:
            document, arrays = saved(self._parts.job.build)
        except ShapeError as error:
            self._parts.reporter.note(f"checkpoints: mpibow.load can't read them: {error}")
            return None, inputs
        return document, inputs | arrays

    def overdue(self) -> bool:
        """Whether a checkpoint is due by rank 0's clock; False on other ranks."""
        return self._rank == 0 and self._settings.overdue(time.perf_counter() - self._agreed)

    def agreed(self) -> None:
        """Restarts the clock, as all ranks are about to save."""
        self._agreed = time.perf_counter()

    def has(self, iteration: int) -> bool:
        return self.last is not None and self.last.name == checkpoint.name_of(iteration)

    def save(
        self, where: Where, header: Mapping[str, Any], statistics: Array, best: bool, average: Array | None
    ) -> None:
        """Writes a checkpoint, and removes those that are not to be kept. Nothing may be under way."""
        begin = time.perf_counter()
        source = self._parts.start.source
        directory.on_rank_0(self._parts.synchroniser.call, self._rank, partial(lock.check, source.folder, source.token))
        parts, folder = self._parts, self._parts.reporter.folder / "checkpoints"
        found = parts.state.snapshot(
            {**parts.lasting, "graph": self._document, **header}, parts.coordinator.kept(where.iteration),
            where.iteration, statistics, self._inputs, average,
        )  # fmt: skip
        self.last = path = checkpoint.save(folder, found, parts.synchroniser.call)
        if self._rank == 0:
            if best and self._settings.best:
                checkpoints.point(folder, "best", path)
            checkpoints.prune(folder, self._settings.keep, path)
        parts.reporter.saved(where, path, time.perf_counter() - begin)
