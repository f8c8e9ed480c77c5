"""The checkpoints of a run: written, found newest first, linked by name, and removed."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mpibow.errors import CheckpointError, ShapeError
from mpibow.job.document import Document, saved
from mpibow.run import checkpoint, directory, lock
from mpibow.system import JsonObject, refusal

from .checkpoint import FIRST, read_header

if TYPE_CHECKING:
    from .session import Session


class Saver:
    """Every rank has one and calls it alike. `last` is the checkpoint that was written last, or is continued."""

    def __init__(self, session: "Session"):
        self._session = session
        self._settings = session.config.checkpoint
        self.last = session.start.source.checkpoint
        job = session.job
        first = session.start.first
        self._document: Document | None = None  # the net as JSON
        # Its arrays that are too long for JSON: the data's, the first statistics, the net's
        self._inputs = {} if job.scaling is None else job.scaling.arrays()
        if first is not None:
            self._inputs |= {FIRST: first}
        try:
            self._document, arrays = saved(job.build)
            self._inputs |= arrays
        except ShapeError as error:
            session.reporter.note(f"checkpoints: mpibow.load can't read them: {error}")
        self.agreed()

    def overdue(self) -> bool:
        """Whether a checkpoint is due by rank 0's clock; False on other ranks."""
        return self._session.rank == 0 and self._settings.overdue(time.perf_counter() - self._agreed)

    def agreed(self) -> None:
        """Restarts the clock, as all ranks are about to save."""
        self._agreed = time.perf_counter()

    def has(self, iteration: int) -> bool:
        return self.last is not None and self.last.name == checkpoint.name_of(iteration)

    def save(self) -> None:
        """Writes a checkpoint, links the ledger's best, and removes those that are not to be kept. Nothing may be under
        way."""
        session = self._session
        synchroniser = session.synchroniser
        diverged = any(synchroniser.call(lambda comm: comm.share(session.resets.due)))
        header = {
            **session.lasting,
            "graph": self._document,
            "counts": session.counts,
            "tuning": session.tuning.state(),
            "ledger": session.ledger.state(),
            "due": [session.talk_due, diverged, session.evaluation_due],
            "untold": session.ledger.unheard,
            "buckets": synchroniser.ahead and synchroniser.ahead.way,
            "average": session.average.entry(),
            "metrics_bytes": synchroniser.call(lambda comm: comm.share(session.reporter.mark()))[0],
        }
        with session.trace.span("checkpoint", "save"):
            statistics = session.statistics()
            begin = time.perf_counter()
            source = session.start.source
            directory.on_rank_0(synchroniser.call, partial(lock.check, source.folder, source.token))
            folder = session.reporter.folder / "checkpoints"
            found = session.state.snapshot(
                header,
                session.coordinator.kept(session.iteration),
                session.iteration,
                statistics,
                self._inputs,
                session.average.weights,
            )
            self.last = path = checkpoint.save(folder, found, synchroniser.call)
            if session.rank == 0:
                if self._settings.best or (folder / "best").is_symlink():
                    point(folder, "best", folder / checkpoint.name_of(session.ledger.best_at or 0))  # 0: none yet
                prune(folder, self._settings.keep, path)
            session.reporter.saved(path, time.perf_counter() - begin)


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, by iteration."""
    return sorted((p for p in folder.glob("iteration-*") if p.is_dir()), reverse=True)


def find(path: Path) -> Iterator[Path]:
    """Checkpoints to try for `path`, best first: itself and those before it, or those of a run directory."""
    if (path / "checkpoints").is_dir():
        _recover(path / "checkpoints")
        yield from newest_first(path / "checkpoints")
        return
    _recover(path.parent)
    real = path.resolve() if path.exists() else path  # `best` is a link
    if not real.name.startswith("iteration-"):
        raise CheckpointError(f"{path}: is neither a checkpoint nor a run directory with checkpoints/ in it")
    yield from (p for p in newest_first(real.parent) if p.name <= real.name)


def _recover(folder: Path) -> None:
    """Restores the name of a checkpoint if the process was killed while replacing it."""
    for old in folder.glob(".iteration-*.old"):
        name = folder / old.name[1:].removesuffix(".old")
        with suppress(OSError):
            if not name.exists():
                old.rename(name)


def find_whole(path: Path, note: Callable[[str], None]) -> tuple[Path, JsonObject]:
    """The first checkpoint of `find` that is whole; each damaged one is named. Raises CheckpointError if none is."""
    damages = []
    for candidate in find(path):
        try:
            header = read_header(candidate)
        except CheckpointError as error:
            damages.append(str(error))
            continue
        for damage in damages:
            note(f"{damage}; using the checkpoint before it")
        return candidate, header
    raise CheckpointError("\n".join([f"{path}: holds no complete checkpoint", *damages]))


def point(folder: Path, name: str, target: Path) -> None:
    """Makes `folder`/`name` a link to the checkpoint `target`, in one step; no link if there is no such checkpoint."""
    aside = folder / f".{name}.link"
    with refusal(CheckpointError, folder / name, "made"):
        aside.unlink(missing_ok=True)
        if not target.is_dir():
            (folder / name).unlink(missing_ok=True)
            return
        aside.symlink_to(target.name)
        aside.rename(folder / name)


def prune(folder: Path, keep: int, latest: Path) -> None:
    """Removes all but the `keep` checkpoints up to `latest`, the one just made, and those that a link names.

    Later ones are of a run that was left when an earlier checkpoint was resumed.
    """
    linked = {p.resolve() for p in folder.iterdir() if p.is_symlink()}
    found = newest_first(folder)
    kept = [p for p in found if p.name <= latest.name][:keep]
    for old in found:
        if old not in kept and old.resolve() not in linked:
            shutil.rmtree(old, ignore_errors=True)


def clear(folder: Path) -> None:
    """Removes the parts of checkpoints that a killed process left; the run that calls it has the lock."""
    for aside in folder.glob(".iteration-*"):
        shutil.rmtree(aside, ignore_errors=True)
