"""Looks at every byte of a data set or record file, and says all that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from mpibow.data import manifest
from mpibow.data.records import RecordFile
from mpibow.data.recordset import open_shard
from mpibow.errors import RecordError


def damages(path: Path, checked: Callable[[int], object] = lambda records: None) -> Iterator[str]:
    """One message a damage, none where all is right; `checked` is called with the number of records just checked."""
    if path.is_dir():
        yield from _set_damages(path, checked)
    else:
        yield from _file_damages(partial(RecordFile, path), checked)


def size(path: Path) -> int:
    """Records that `damages` would check, as far as that can be told without checking."""
    try:
        return manifest.load(path).count if path.is_dir() else RecordFile(path).count
    except RecordError:
        return 0


def _set_damages(folder: Path, checked: Callable[[int], object]) -> Iterator[str]:
    files = sorted(folder.glob("*.mpr"))
    try:
        known = manifest.load(folder)
    except RecordError as error:
        yield str(error)
        for file in files:  # which may be whole
            yield from _file_damages(partial(RecordFile, file), checked)
        return
    for shard in known.shards:
        yield from _file_damages(partial(open_shard, folder, known, shard), checked)
    for file in files:
        if file.name not in {shard.file for shard in known.shards}:
            yield f"{file}: is not in the manifest; remove it"


def _file_damages(opened: Callable[[], RecordFile], checked: Callable[[int], object]) -> Iterator[str]:
    try:
        file = opened()
    except RecordError as error:
        yield str(error)
        return
    for record in range(file.count):
        try:
            file.image(record)
        except RecordError as error:
            yield str(error)
        checked(1)
