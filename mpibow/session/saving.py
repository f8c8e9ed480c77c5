"""Saving: a run's state on disk, and which checkpoints are kept."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mpibow.errors import ShapeError
from mpibow.graph.graph import Array
from mpibow.job.document import Document, saved
from mpibow.run import checkpoint, checkpoints, directory, lock
from mpibow.session.given import FIRST

if TYPE_CHECKING:
    from mpibow.session.session import Session


class Saver:
    """Every rank has one and calls it alike. `last` is the checkpoint that was written last, or is continued."""

    def __init__(self, session: Session) -> None:
        self._session, self._settings = session, session.config.checkpoint
        self.last: Path | None = session.start.source.checkpoint
        self._document, self._inputs = self._net()
        self.agreed()

    def _net(self) -> tuple[Document | None, dict[str, Array]]:
        """The net as JSON, and its arrays that are too long for JSON: the net's, the data's, the first statistics."""
        job, first = self._session.job, self._session.start.first
        inputs = {} if job.scaling is None else job.scaling.arrays()
        if first is not None:
            inputs |= {FIRST: first}
        try:
            document, arrays = saved(job.build)
        except ShapeError as error:
            self._session.reporter.note(f"checkpoints: mpibow.load can't read them: {error}")
            return None, inputs
        return document, inputs | arrays

    def overdue(self) -> bool:
        """Whether a checkpoint is due by rank 0's clock; False on other ranks."""
        return self._session.rank == 0 and self._settings.overdue(time.perf_counter() - self._agreed)

    def agreed(self) -> None:
        """Restarts the clock, as all ranks are about to save."""
        self._agreed = time.perf_counter()

    def has(self, iteration: int) -> bool:
        return self.last is not None and self.last.name == checkpoint.name_of(iteration)

    def save(self, best: bool) -> None:
        """Writes a checkpoint, and removes those that are not to be kept. Nothing may be under way."""
        session, synchroniser = self._session, self._session.synchroniser
        diverged = any(synchroniser.call(lambda comm: comm.share(session.resets.due)))
        header = {
            **session.lasting,
            "graph": self._document,
            "counts": session.counts,
            "tuning": session.tuning.state(),
            "ledger": session.ledger.state(),
            "due": [session.asked, diverged, session.owed],
            "untold": session.untold,
            "average": session.average.entry(),
            "metrics_bytes": synchroniser.call(lambda comm: comm.share(session.reporter.mark()))[0],
        }
        with session.trace.span("checkpoint", "save"):
            statistics, begin, source = session.statistics(), time.perf_counter(), session.start.source
            held = partial(lock.check, source.folder, source.token)
            directory.on_rank_0(synchroniser.call, session.rank, held)
            folder = session.reporter.folder / "checkpoints"
            found = session.state.snapshot(
                header, session.coordinator.kept(session.iteration), session.iteration, statistics, self._inputs,
                session.average.weights,
            )  # fmt: skip
            self.last = path = checkpoint.save(folder, found, synchroniser.call)
            if session.rank == 0:
                if best and self._settings.best:
                    checkpoints.point(folder, "best", path)
                checkpoints.prune(folder, self._settings.keep, path)
            session.reporter.saved(path, time.perf_counter() - begin)
