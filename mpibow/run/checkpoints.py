"""The checkpoints of a run: found, newest first, linked by name, and removed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpibow.errors import CheckpointError
from mpibow.run.checkpoint import read_header
from mpibow.system.files import reason


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


def find_whole(path: Path, note: Callable[[str], None]) -> tuple[Path, dict[str, Any]]:
    """The first checkpoint of `find` that is whole; each damaged one is named. Raises CheckpointError if none is."""
    damages = list[str]()
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
    """Makes `folder`/`name` a link to the checkpoint `target`, in one step."""
    aside = folder / f".{name}.link"
    try:
        aside.unlink(missing_ok=True)
        aside.symlink_to(target.name)
        aside.rename(folder / name)
    except OSError as error:
        raise CheckpointError(f"{folder / name}: cannot be made: {reason(error)}") from error


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
