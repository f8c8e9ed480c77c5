"""The source files of a converter: those of a folder, of a pattern, or of train and test below one folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from mpibow.errors import RecordError

PARTS = {"train": ("train",), "test": ("test", "val")}  # beginnings of names


def files(place: str | Path) -> list[Path]:
    """The files that a folder holds, that a pattern like 'data/train-*' matches, or the one of this name.

    They are sorted by the numbers in their names: 2 before 10. Raises RecordError where there are none.
    """
    path = Path(place)
    found = path.iterdir() if path.is_dir() else map(Path, [place] if path.is_file() else glob(str(place)))
    there = [file for file in found if file.is_file() and not file.name.startswith(".")]
    if not there:
        raise RecordError(f"{place}: there are no such files; name a folder, or a pattern in quotes")
    return sorted(there, key=_numbers)


def parts(source: Path) -> dict[str, list[Path]]:
    """Files to train and, where there are any, to test: below `source` by the beginnings of their or a folder's name.

    `source` may also be one file to train. Raises RecordError where there is none, or where the choice is ambiguous.
    """
    if source.is_file():
        return {"train": [source]}
    if not source.is_dir():
        raise RecordError(f"{source}: there is no such file or folder")
    found = {}
    for part, starts in PARTS.items():
        there = {start: sorted(source.glob(f"{start}*"), key=_numbers) for start in starts}
        several = [start for start in starts if there[start]]
        if len(several) > 1:
            raise RecordError(
                f"{source}: has {' and '.join(f'{start}*' for start in several)}; say which by --train and --test"
            )
        if several:
            found[part] = _within(there[several[0]])
    if "train" not in found:
        raise RecordError(f"{source}: has no files or folders train*; say which by --train and --test")
    return found


def _within(entries: Sequence[Path]) -> list[Path]:
    return [file for entry in entries for file in (files(entry) if entry.is_dir() else [entry])]


def _numbers(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", str(path)) if part]
