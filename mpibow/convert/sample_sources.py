"""What a person has a net predict: paths, folders, globs, pictures, data frames, and lists of these."""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from glob import glob
from pathlib import Path

from PIL.Image import Image as Photo
from tqdm import tqdm

from mpibow.data import Frame, is_frame
from mpibow.data.items import array_of
from mpibow.data.manifest import FILE
from mpibow.data.photo import decodable
from mpibow.errors import RecordError
from mpibow.job.predictor import Sample, Sources
from mpibow.system import StrPath

from .folders import Left, say_left, walk
from .net_inputs import Failed, NetInputs, of_image, of_table, read
from .recode import png
from .table_files import SourceTable

PATIENCE = 1.0  # seconds without a progress bar


def samples(sources: Sources, wanted: NetInputs, failed: Failed) -> Iterator[Sample]:
    """All samples in order; `failed` is called for each file, picture and row that cannot be read.

    Long work has a progress bar on a terminal.
    """
    readers = []
    for number, source in enumerate(sources if isinstance(sources, list | tuple | Iterator) else [sources]):
        try:
            readers += _readers(number, source, wanted, failed)
        except RecordError as error:
            failed(error)
    total = len(readers) if len(readers) > 1 else None  # one file may have many samples
    with tqdm(total=total, unit=" samples", delay=PATIENCE, disable=None, leave=False) as bar:
        for reader in readers:
            try:
                for sample in reader():
                    bar.update()
                    yield sample
            except RecordError as error:
                failed(error)


def files_of(path: Path) -> list[Path]:
    """`path`, or all images below a folder, by name; says what is left out. Raises RecordError where there are none."""
    if not path.is_dir() or (path / FILE).exists():
        return [path]
    left = Left()
    found = [path / name for name in walk(path, left)]
    say_left(path, left, sys.stderr)
    if not found:
        raise RecordError(f"{path}: has no {FILE} of records, and no images in it or below")
    return found


def _readers(number: int, source: object, wanted: NetInputs, failed: Failed) -> list[Callable[[], Iterator[Sample]]]:
    if isinstance(source, str | os.PathLike):
        return [partial(read, file, wanted, failed) for path in _matches(source) for file in files_of(path)]
    if isinstance(source, Photo):
        return [partial(_picture, number, source, wanted)]
    if is_frame(source):
        return [partial(of_table, _table(source), wanted, failed)]
    raise RecordError(
        f"input {number}: must be a path, a picture of Pillow or a data frame, got {type(source).__name__}"
    )


def _matches(source: StrPath) -> list[Path]:
    """The path, or what matches it as a glob (** is any number of folders), by name."""
    if os.path.exists(source):
        return [Path(source)]
    found = [Path(name) for name in sorted(glob(os.fspath(source), recursive=True))]
    if not found:
        raise RecordError(f"{os.fspath(source)}: does not exist")
    files = {file for path in found if path.is_dir() for file in path.rglob("*")}  # read with their folder
    return [path for path in found if path not in files]


def _picture(number: int, picture: Photo, wanted: NetInputs) -> Iterator[Sample]:
    """A picture as its file would be: upright if it is as it was opened."""
    called = str(getattr(picture, "filename", "") or f"picture {number}")
    with decodable(f"{called}: "):
        pixels = array_of("image", picture)
    yield called, of_image(called, png(pixels, level=0), wanted)


def _table(frame: Frame) -> SourceTable:
    """A data frame of pandas or polars as a table; missing values are None."""
    columns = {}
    for name in frame.columns:
        column = frame[name]
        if hasattr(column, "notna"):  # pandas has several values that are missing
            column = column.astype(object).where(column.notna(), None)
        columns[str(name)] = list(column)
    count = len(next(iter(columns.values()), []))
    return SourceTable(Path("frame"), "frame", columns, list(getattr(frame, "index", range(count))), "row")
