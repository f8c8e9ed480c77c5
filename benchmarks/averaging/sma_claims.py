"""Cells of bench_sma.py that several processes share: each is run by one of them, and all results are kept."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from benchmarks.averaging.sma_cells import Cell
from mpibow.run.directory import write


def kept(path: Path) -> dict[str, Any]:
    """What came of the cells that have run, by their keys."""
    return json.loads(path.read_text()) if path.exists() else {}


def keep(path: Path, key: str, found: Any) -> None:
    """Adds a cell to the results, which other processes may be adding to."""
    with _locked(path.parent):
        write(path, json.dumps(kept(path) | {key: found}, indent=1) + "\n")


class Claim:
    """The cell, or the branches of one trunk, that this process runs. The system drops it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._name, self._file = folder, "", -1
        folder.mkdir(parents=True, exist_ok=True)

    def first(self, cells: Sequence[Cell]) -> Cell | None:
        """The first of `cells` that no other process runs, which is claimed; None if they run all."""
        for cell in cells:
            name = f"{crc32(f'{cell.net} {cell.trunk}'.encode() if cell.trunk else cell.key.encode()):08x}.lock"
            if name == self._name:
                return cell
            file = os.open(self._folder / name, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            self.drop()
            self._name, self._file = name, file
            return cell
        return None

    def drop(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._name, self._file = "", -1


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
