"""Checks every byte of a data set or record file, and reports all damage."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mpibow.data import manifest
from mpibow.errors import RecordError

from .records import RecordFile
from .recordset import open_shard
from .sheet import decode

PIECE = 64 << 20  # bytes that are checked at once: a worker's task, and a step of the progress bar
DECODED = 4 << 20  # likewise where images are decoded, which takes a hundred times as long


@dataclass(frozen=True)
class RecordRange:
    """Records `first` to `stop` - 1 of a file whose structure is whole."""

    path: Path
    first: int
    stop: int
    decoded: bool


Task = RecordRange | str  # a str: a damage found already
Result = tuple[list[str], int]  # damages, and the number of records that were checked
Each = Callable[[Callable[[Task], Result], Iterable[Task]], Iterator[Result]]  # results in the order of the tasks


def damages(
    path: Path, checked: Callable[[int], object] = lambda records: None, *, each: Each = map, decoded: bool = False
) -> Iterator[str]:
    """One message a damage, none where all is right; `checked` is called with the number of records just checked.

    `each` may spread the work (`conversion.spreader`). `decoded`: every encoded image is decoded as well.
    """
    found = set_tasks(path, decoded) if path.is_dir() else _file_tasks(partial(RecordFile, path), decoded)
    for messages, count in each(check, found):
        yield from messages
        checked(count)


def size(path: Path) -> int:
    """Records that `damages` would check, as far as they can be counted without checking."""
    try:
        return manifest.load(path).count if path.is_dir() else RecordFile(path).count
    except RecordError:
        return 0


def check(task: Task) -> Result:
    """The damages of one piece."""
    if isinstance(task, str):
        return [task], 0
    found = []
    try:
        file = RecordFile(task.path)
    except RecordError as error:  # it was whole a moment ago
        return [str(error)], 0
    for record in range(task.first, task.stop):
        try:
            image, _ = file.stored(record)
            if task.decoded:
                decode(image, file.form.encoding, f"{task.path}: record {record}")
        except RecordError as error:
            found.append(str(error))
    return found, task.stop - task.first


def set_tasks(folder: Path, decoded: bool) -> Iterator[Task]:
    files = sorted(folder.glob("*.mpr"))
    try:
        known = manifest.load(folder)
    except RecordError as error:
        yield str(error)
        for file in files:  # which may be whole
            yield from _file_tasks(partial(RecordFile, file), decoded)
        return
    for shard in known.shards:
        yield from _file_tasks(partial(open_shard, folder, known, shard), decoded)
    for file in files:
        if file.name not in {shard.file for shard in known.shards}:
            yield f"{file}: is not in the manifest; remove it"


def _file_tasks(opened: Callable[[], RecordFile], decoded: bool) -> Iterator[Task]:
    try:
        file = opened()
    except RecordError as error:
        yield str(error)
        return
    decoded = decoded and file.form.encoding != "raw"
    step = max(1, file.count * (DECODED if decoded else PIECE) // file.size)
    for first in range(0, file.count, step):
        yield RecordRange(file.path, first, min(first + step, file.count), decoded)
