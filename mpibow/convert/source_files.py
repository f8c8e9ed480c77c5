"""The source files of a converter: found by folder, pattern or part, and unpacked while they are read."""

import gzip
import lzma
import mmap
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from io import BufferedReader
from pathlib import Path

from mpibow.data.aside import refused
from mpibow.errors import RecordError
from mpibow.system import open_file, reason

from .folders import hidden, part_of

Source = gzip.GzipFile | lzma.LZMAFile | BufferedReader
ENDS = {".gz": gzip, ".tgz": gzip, ".xz": lzma, ".txz": lzma}


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """The file's bytes, unpacked. Raises RecordError where the file is damaged, also for errors inside the block."""
    form = ENDS.get(path.suffix.lower())
    with refused(path, "read"):
        try:
            with open_file(path) as raw, form.open(raw) if form else raw as file:
                yield file
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            what = f"is not a complete {'gzip' if form is gzip else 'xz'} file: {str(error).lower()}"
            raise RecordError(f"{path}: {what}; get the file again") from error


def read_whole(path: Path, file: Source, size: int, what: str) -> bytes:
    """The next `size` bytes of the file, which are `what`. Raises RecordError where there are fewer."""
    data = file.read(size)
    if len(data) != size:
        raise RecordError(f"{path}: ends within {what}; get the file again")
    return data


def mapped(path: Path) -> mmap.mmap:
    """The file's bytes, mapped: of ImageNet's 150 GB, lengths, labels and names are needed before the images.

    Raises RecordError where it cannot be read, or is empty.
    """
    try:
        with open_file(path) as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: it is empty
        raise RecordError(f"{path}: cannot be read: {reason(error)}") from error


def files(place: str | Path) -> list[Path]:
    """The files that a folder holds, that a pattern like 'data/train-*' matches, or the one of this name.

    They are sorted by the numbers in their names. Raises RecordError where there are none.
    """
    path = Path(place)
    found = path.iterdir() if path.is_dir() else map(Path, [place] if path.is_file() else glob(str(place)))
    there = [file for file in found if file.is_file() and not hidden(file.name)]
    if not there:
        raise RecordError(f"{place}: there are no such files; name a folder, or a pattern in quotes")
    return sorted(there, key=by_numbers)


def parts(source: Path) -> dict[str, list[Path]]:
    """Files to train and, where there are any, to test: below `source` by their or a folder's name.

    `source` may also be one file to train. Says what is left out. Raises RecordError where there is none, or where the
    choice is ambiguous.
    """
    if source.is_file():
        return {"train": [source]}
    if not source.is_dir():
        raise RecordError(f"{source}: there is no such file or folder")
    found = dict[str | None, list[Path]]()
    for path in sorted((path for path in source.iterdir() if not hidden(path.name)), key=by_numbers):
        found.setdefault(part_of(path.name), []).append(path)
    tests = [found[part][0].name for part in ("test", "validation") if part in found]
    if "train" not in found or len(tests) > 1:
        has = f"has {' and '.join(tests)}" if len(tests) > 1 else "has no files or folders to train on, by their names"
        raise RecordError(f"{source}: {has}; say which by --train and --test")
    if others := found.pop(None, []):
        print(f"{source}: left out, not parts by their names: {', '.join(path.name for path in others)}")
    return {
        "train" if part == "train" else "test": [
            file for path in paths for file in (files(path) if path.is_dir() else [path])
        ]
        for part, paths in found.items()
    }


def by_numbers(path: Path) -> list[tuple[int, str]]:
    """The key that sorts names by their numbers: 2 before 10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", str(path)) if part]
