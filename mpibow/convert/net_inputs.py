"""A net's inputs out of files: images, arrays, CSV tables, folders of records, one sample after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from mpibow.convert.folders import Left, say_left, walk
from mpibow.convert.recode import ToArray, ToEncoded, kind_of
from mpibow.convert.table_files import PARQUET, check_widths, read_table, rows_of
from mpibow.data.aside import content_of
from mpibow.data.columns import LARGEST, PLAIN, Columns
from mpibow.data.dataset import Array, NamedSamples, lots
from mpibow.data.decoded import Decoded, centre_windows
from mpibow.data.image_header import sides_of
from mpibow.data.labelled import Labelled
from mpibow.data.manifest import FILE
from mpibow.data.photo import decodable, take
from mpibow.data.recordset import open_records
from mpibow.data.sample_settings import Image
from mpibow.errors import RecordError
from mpibow.job.opening import named_samples
from mpibow.job.record_kinds import for_net

TABLES = (".csv", ".tsv", *PARQUET)
LOT = 256  # records that are read at once
Sample = tuple[str, Mapping[str, Array]]  # its name, and its arrays by the names of the net's inputs


@dataclass(frozen=True)
class NetInputs:
    """The inputs of a net: shape and dtype of one sample's.

    `image` is the conversion of encoded images in training, None where images were raw: then others are scaled to the
    net's size, as the converters do, with `crop` without changing their shape.
    """

    inputs: Mapping[str, tuple[tuple[int, ...], str]]
    image: Image | None = None
    crop: bool = False
    columns: Columns | None = None  # of the table that the net was trained on

    def __str__(self) -> str:
        return ", ".join(f"{name} {shape} {dtype}" for name, (shape, dtype) in self.inputs.items())


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


def read(path: Path, wanted: NetInputs) -> Iterator[Sample]:
    """The samples in a file or a folder of records. Raises RecordError, beginning with the file's name."""
    if not path.exists():
        raise RecordError(f"{path}: does not exist")
    if path.is_dir():
        yield from _records(path, wanted)
    elif path.suffix.lower() in (".npy", ".npz"):
        yield from _arrays(path, wanted)
    elif wanted.columns is not None:
        yield from _table(path, wanted.columns, wanted)
    elif {suffix.lower() for suffix in path.suffixes[-2:]} & {*TABLES}:
        yield from _numbers(path, wanted)
    else:
        yield str(path), _image(path, wanted)


def _records(path: Path, wanted: NetInputs) -> Iterator[Sample]:
    records = open_records(path)
    if set(wanted.inputs) == {"image"}:
        data: NamedSamples = Labelled(records if records.shape else Decoded(records, wanted.image or Image()))
    else:
        data = for_net(named_samples(str(path), image=wanted.image), [*wanted.inputs])
    if lacking := [name for name in wanted.inputs if name not in data.inputs]:
        raise RecordError(f"{path}: has {', '.join(data.inputs)}, the net takes {lacking[0]}")
    for samples, arrays in lots(data, LOT):
        for row, sample in enumerate(samples.tolist()):
            named = {name: _fitting(path, arrays[name][row].copy(), name, wanted) for name in wanted.inputs}
            yield f"{path}[{sample}]", named


def _arrays(path: Path, wanted: NetInputs) -> Iterator[Sample]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file)
            given = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else {"": loaded}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise RecordError(f"{path}: cannot be read as NumPy's: {str(error).splitlines()[0]}") from None
    if len(given) == len(wanted.inputs) == 1:  # whatever its name
        given = {name: next(iter(given.values())) for name in wanted.inputs}
    if lacking := [name for name in wanted.inputs if name not in given]:
        there = "one array" if "" in given else ", ".join(given)
        raise RecordError(f"{path}: has {there}, the net takes {', '.join(wanted.inputs)}: {lacking[0]} is missing")
    whole = {name: given[name] for name in wanted.inputs}
    if all(array.shape == wanted.inputs[name][0] for name, array in whole.items()):  # one sample
        yield str(path), {name: _fitting(path, array, name, wanted) for name, array in whole.items()}
        return
    counts = {array.shape[:1] for array in whole.values()}
    if len(counts) != 1 or () in counts:
        raise RecordError(
            f"{path}: arrays must be of one length, got {', '.join(str(a.shape) for a in whole.values())}"
        )
    for row in range(*counts.pop()):
        yield f"{path}[{row}]", {name: _fitting(path, array[row], name, wanted) for name, array in whole.items()}


def _table(path: Path, columns: Columns, wanted: NetInputs) -> Iterator[Sample]:
    """Rows of a table, scaled and numbered like the one that the net was trained on."""
    table = read_table(path)
    if lacking := [each.name for each in columns.inputs if each.name not in table.columns]:
        raise RecordError(f"{path}: has columns {', '.join(table.columns)}: {lacking[0]} is missing")
    for n, line in enumerate(table.rows):
        try:
            found = columns.encode({name: cells[n : n + 1] for name, cells in table.columns.items()})
        except RecordError as error:
            raise RecordError(f"{table.where(n)}: {str(error).removeprefix('row 1: ')}") from None
        parts = [array[0] for array in found.values()]
        if len(wanted.inputs) < len(parts):  # a classifier has all columns in one array
            parts = [np.concatenate([part.ravel().astype(np.float32) for part in parts])]
        named = zip(wanted.inputs.items(), parts, strict=True)
        yield f"{path}[{line}]", {name: part.reshape(shape).astype(dtype) for (name, (shape, dtype)), part in named}


def _numbers(path: Path, wanted: NetInputs) -> Iterator[Sample]:
    """Rows of numbers, below a line of names if there is one. A net of several inputs takes columns by name."""
    if path.suffix.lower() in PARQUET:
        raise RecordError(f"{path}: this net was trained on no table; give arrays as .npy or .npz, or rows as .csv")
    rows = rows_of(path)
    heads = None if not rows or any(map(_is_number, rows[0][1])) else [name.strip() for name in rows[0][1]]
    if len(rows) == (heads is not None):
        raise RecordError(f"{path}: has no rows of numbers")
    check_widths(path, rows)
    for line, row in rows[heads is not None :]:
        place = f"{path}: line {line}"
        if wrong := [value for value in row if not _is_number(value)]:
            raise RecordError(f"{place}: must be numbers, got '{wrong[0]}'")
        yield f"{path}[{line}]", _of_row(place, [float(value) for value in row], heads, wanted)


def _of_row(place: str, values: Sequence[float], heads: Sequence[str] | None, wanted: NetInputs) -> dict[str, Array]:
    if len(wanted.inputs) == 1:
        ((name, (shape, dtype)),) = wanted.inputs.items()
        size = int(np.prod(shape))
        if len(values) != size:
            raise RecordError(f"{place}: has {len(values)} numbers, the net takes {size}")
        return {name: _as(place, np.array(values).reshape(shape), dtype)}
    if heads is None:
        raise RecordError(f"{place}: has no line of names above it, the net takes columns {', '.join(wanted.inputs)}")
    found = dict(zip(heads, values, strict=False))
    if lacking := [name for name, (shape, _) in wanted.inputs.items() if name not in found or shape]:
        raise RecordError(f"{place}: has columns {', '.join(heads)}, the net takes {wanted}: {lacking[0]} is none")
    return {name: _as(place, np.array(found[name]), dtype) for name, (_, dtype) in wanted.inputs.items()}


def _as(place: str, values: Array, dtype: str) -> Array:
    if np.issubdtype(np.dtype(dtype), np.integer) and not np.array_equal(values, np.floor(values)):
        raise RecordError(f"{place}: must be integers, as in training, got {values.ravel()[0]:g}")
    return values.astype(dtype)


def _is_number(text: str) -> bool:
    value = PLAIN.number(text)
    return value is not None and abs(value) <= LARGEST


def _image(path: Path, wanted: NetInputs) -> dict[str, Array]:
    """The image as in evaluation. Raises RecordError where the net takes no such images."""
    ((name, (shape, dtype)), *others) = wanted.inputs.items()
    if others or dtype != "uint8" or len(shape) != 3 or shape[0] not in (1, 3):
        raise RecordError(f"{path}: the net takes {wanted}; give arrays as .npy or .npz, or rows as .csv")
    data = content_of(path)
    try:
        if wanted.image is None:
            return {name: ToArray(shape[0], shape[1:], wanted.crop)(data).image}
        if kind_of(data) is None:
            data = ToEncoded("png")(data).image
        stored, out = np.frombuffer(data, np.uint8), np.empty(shape, np.uint8)
        with decodable():
            size, orientation = sides_of(stored)
            sides = np.array(size)
            window = centre_windows(sides[None], wanted.image.shorter, wanted.image.size)[0]
            take(stored, orientation, sides, window, out)
        return {name: out}
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None


def _fitting(path: Path, array: Array, name: str, wanted: NetInputs) -> Array:
    """One sample's array. Raises RecordError where it differs from training."""
    shape, dtype = wanted.inputs[name]
    called = "" if len(wanted.inputs) == 1 else f"{name} "
    if array.shape != shape:
        raise RecordError(f"{path}: {called}must be {shape} for a sample, as in training, got {array.shape}")
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise RecordError(f"{path}: {called}must be {dtype} as in training, got {array.dtype}")
    return array
