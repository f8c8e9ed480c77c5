"""A net's inputs out of files: images, arrays, tables, texts, folders of records, one sample after the other."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpibow.config import build
from mpibow.data import Array, Image, NamedSamples, lots, open_records
from mpibow.data.aside import FAULTS, content_of, refused
from mpibow.data.columns import LARGEST, PLAIN, Columns
from mpibow.data.decoded import Decoded, centre_windows
from mpibow.data.image_header import sides_of
from mpibow.data.labelled import Labelled
from mpibow.data.photo import decodable, take
from mpibow.data.text import FILE, Tokens, read_tokens
from mpibow.errors import CheckpointError, ConfigError, DamagedRecord, RecordError
from mpibow.graph import FLOAT, Shape
from mpibow.job.normalise import difference
from mpibow.job.predictor import Predictor, Sample
from mpibow.job.record_kinds import classified, for_net, named

from .recode import ToArray, ToEncoded, kind_of
from .table_files import PARQUET, SourceTable, check_widths, read_table, read_text, rows_of

TABLES = {".csv", ".tsv"}
LOT = 256  # records that are read at once
Failed = Callable[[RecordError], None]  # called for a file or a row that cannot be read; it may raise


@dataclass(frozen=True)
class NetInputs:
    """The inputs of a net: shape and dtype of one sample's.

    `image` is the conversion of encoded images in training, None where images were raw: then others are scaled to the
    net's size, as the converters do, with `crop` without changing their shape.
    """

    inputs: Mapping[str, tuple[Shape, str]]
    image: Image | None = None
    crop: bool = False
    columns: Columns | None = None  # of the table that the net was trained on
    heads: Sequence[str] = ()  # the columns of the data frame that its one input was
    tokens: Tokens | None = None  # of the text that it was trained on
    contents: Mapping[str, Any] = field(default_factory=dict)  # of the records that it was trained on

    @classmethod
    def of(cls, predictor: Predictor, about: Mapping[str, Any], run: Path | None, crop: bool = False) -> "NetInputs":
        """The inputs of a trained net, by the facts about its training data (job/normalise.py). Raises CheckpointError.

        `run` is its run directory, which keeps the tokenizer.
        """
        tensors = [predictor.graph.tensors[name] for name in predictor.inputs]
        inputs = {each.name: (each.shape[1:], "float32" if each.dtype == FLOAT else each.dtype) for each in tensors}
        settings = about.get("image")
        contents = about.get("contents") or {}
        of_tokens = [(len(shape), dtype) for shape, dtype in inputs.values()] == [(1, "int32")]
        try:
            image = None if settings is None else build(Image, settings, path="input.image")
            columns = Columns.of(contents) if contents.get("kind") == "table" else None
            tokens = read_tokens(run) if of_tokens and run is not None and (run / FILE).is_file() else None
        except (ConfigError, RecordError) as error:
            raise CheckpointError(str(error)) from None
        return cls(inputs, image, crop, columns, about.get("sources", {}).get("columns", ()), tokens, contents)

    def __str__(self) -> str:
        return ", ".join(f"{name} {shape} {dtype}" for name, (shape, dtype) in self.inputs.items())

    def places(self, path: object, heads: Sequence[str] | None, width: int) -> list[int]:
        """The places of the net's numbers in rows of a table, by name where the net has names. Raises RecordError."""
        names = [*self.inputs] if len(self.inputs) > 1 else self.heads if heads is not None else ()
        if not names:
            size = sum(int(np.prod(shape)) for shape, _ in self.inputs.values())
            if width != size:
                raise RecordError(f"{path}: has {width} numbers in a row, the net takes {size}")
            return list(range(size))
        if heads is None:
            raise RecordError(f"{path}: has no line of names, the net takes columns {', '.join(names)}")
        if lacking := [name for name in names if name not in heads]:
            raise RecordError(
                f"{path}: has columns {', '.join(heads)}, the net takes {', '.join(names)}: {lacking[0]} is missing"
            )
        return [heads.index(name) for name in names]


def read(path: Path, wanted: NetInputs, failed: Failed) -> Iterator[Sample]:
    """The samples in a file or a folder of records; `failed` is called for each row of a table that does not fit.

    Raises RecordError, beginning with the file's name.
    """
    if path.is_dir():
        yield from _records(path, wanted, failed)
    elif path.suffix.lower() in (".npy", ".npz"):
        yield from _arrays(path, wanted)
    elif wanted.columns is not None or path.suffix.lower() in PARQUET:
        yield from of_table(read_table(path), wanted, failed)
    elif {suffix.lower() for suffix in path.suffixes[-2:]} & TABLES:
        yield from _numbers(path, wanted, failed)
    elif wanted.tokens is not None:
        yield from _text(path, wanted.tokens, wanted)
    else:
        yield str(path), of_image(str(path), content_of(path), wanted)


def _records(path: Path, wanted: NetInputs, failed: Failed) -> Iterator[Sample]:
    records = open_records(path)
    if set(wanted.inputs) == {"image"} and classified(records):
        data: NamedSamples = Labelled(records if records.shape else Decoded(records, wanted.image or Image()))
    else:
        data = for_net(named(records, image=wanted.image), [*wanted.inputs])
    if fault := difference(data, {"contents": wanted.contents}):
        raise RecordError(f"{path}: {fault}")
    if lacking := [name for name in wanted.inputs if name not in data.inputs]:
        raise RecordError(f"{path}: has {', '.join(data.inputs)}, the net takes {lacking[0]}")
    rest = np.arange(data.count)
    while rest.size:
        try:
            for samples, arrays in lots(data, LOT, rest):
                for row, sample in enumerate(samples.tolist()):
                    inputs = {name: _fitting(path, arrays[name][row].copy(), name, wanted) for name in wanted.inputs}
                    yield f"{path}[{sample}]", inputs
                rest = rest[len(samples) :]
        except DamagedRecord as error:
            if error.sample not in rest:
                raise
            failed(error)
            rest = rest[rest != error.sample]


def _arrays(path: Path, wanted: NetInputs) -> Iterator[Sample]:
    try:
        with refused(path, "read"):
            loaded = np.load(path, mmap_mode="r")  # a file may be larger than memory
            given = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else {"": loaded}
    except FAULTS as error:
        what = str(error) or type(error).__name__
        raise RecordError(f"{path}: cannot be read as NumPy's: {what.splitlines()[0]}") from None
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


def of_table(table: SourceTable, wanted: NetInputs, failed: Failed) -> Iterator[Sample]:
    """The rows of a table: scaled and numbered like the one that the net was trained on, or as numbers."""
    if wanted.columns is None:
        rows = zip(table.rows, zip(*table.columns.values(), strict=True), strict=True)
        yield from _number_rows(table.path, table.unit, rows, [*table.columns], wanted, failed)
        return
    if lacking := [each.name for each in wanted.columns.inputs if each.name not in table.columns]:
        raise RecordError(f"{table.path}: has columns {', '.join(table.columns)}: {lacking[0]} is missing")
    for n, line in enumerate(table.rows):
        try:
            found = wanted.columns.encode({name: cells[n : n + 1] for name, cells in table.columns.items()})
        except RecordError as error:
            failed(RecordError(f"{table.where(n)}: {str(error).removeprefix('row 1: ')}"))
            continue
        names = wanted.inputs.keys()
        parts = [found[name][0] for name in (names if names <= found.keys() else found)]
        if len(wanted.inputs) < len(parts):  # a classifier has all columns in one array
            parts = [np.concatenate([part.ravel().astype(np.float32) for part in parts])]
        pairs = zip(wanted.inputs.items(), parts, strict=True)
        inputs = {name: part.reshape(shape).astype(dtype) for (name, (shape, dtype)), part in pairs}
        yield f"{table.path}[{line}]", inputs


def _numbers(path: Path, wanted: NetInputs, failed: Failed) -> Iterator[Sample]:
    """Rows of numbers, below a line of names if there is one. A net of several inputs takes columns by name."""
    rows = rows_of(path)
    first = rows[0][1] if rows else ["0"]
    named = wanted.heads and {*wanted.heads} <= {*first}
    heads = None if not named and any(_number(cell) is not None for cell in first) else first
    if heads is None and rows[1:] and first == [*map(str, range(len(first)))] != ["0"]:
        where = f"{path}: line {rows[0][0]}"
        raise RecordError(f"{where}: may be a sample, or pandas' numbers of columns; write names, or 0.0 for 0")
    if len(rows) == (heads is not None):
        raise RecordError(f"{path}: has no rows of numbers")
    check_widths(path, rows)
    names = None if heads is None else [name.strip() for name in heads]
    yield from _number_rows(path, "line", rows[heads is not None :], names, wanted, failed)


def _number_rows(
    path: Path,
    unit: str,
    rows: Iterable[tuple[object, Sequence[object]]],
    heads: Sequence[str] | None,
    wanted: NetInputs,
    failed: Failed,
) -> Iterator[Sample]:
    """Rows of cells that are numbers, each with its line; `heads` are the names of all columns."""
    places = None if heads is None else wanted.places(path, heads, len(heads))
    for line, cells in rows:
        if places is None:
            places = wanted.places(path, None, len(cells))
        try:
            yield f"{path}[{line}]", _of_row([cells[place] for place in places], wanted)
        except RecordError as error:
            failed(RecordError(f"{path}: {unit} {line}: {error}"))


def _of_row(cells: Sequence[object], wanted: NetInputs) -> dict[str, Array]:
    values = [_number(cell) for cell in cells]
    if None in values:
        raise RecordError(f"must be numbers, got {str(cells[values.index(None)])!r}")
    parts = values if len(wanted.inputs) > 1 else [values]
    return {name: _as(np.array(part), each) for (name, each), part in zip(wanted.inputs.items(), parts, strict=True)}


def _as(values: Array, wanted: tuple[Shape, str]) -> Array:
    dtype = np.dtype(wanted[1])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if wrong := [n for n in values.ravel().tolist() if not (n.is_integer() and limits.min <= n <= limits.max)]:
            raise RecordError(f"must be integers of {dtype}, as in training, got {wrong[0]:g}")
    return values.reshape(wanted[0]).astype(dtype)


def _number(cell: object) -> float | None:
    value = PLAIN.number(cell)
    return value if value is not None and abs(value) <= LARGEST else None


def _text(path: Path, tokens: Tokens, wanted: NetInputs) -> Iterator[Sample]:
    """The windows of a text, one after the other; the last one is filled up with token 0, as in generation."""
    ((name, ((context,), dtype)),) = wanted.inputs.items()
    text = read_text(path)
    try:
        stream = tokens.encode(text)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    if not len(stream):
        raise RecordError(f"{path}: has no text")
    for window, start in enumerate(range(0, len(stream), context)):
        part = stream[start : start + context]
        yield f"{path}[{window}]", {name: np.pad(part, (0, context - len(part))).astype(dtype)}


def of_image(called: str, data: bytes, wanted: NetInputs) -> dict[str, Array]:
    """An encoded image as in evaluation. Raises RecordError where the net takes no such images."""
    (name, (shape, dtype)), *others = wanted.inputs.items()
    if others or dtype != "uint8" or len(shape) != 3 or shape[0] not in (1, 3):
        raise RecordError(f"{called}: the net takes {wanted}; give arrays as .npy or .npz, or rows as .csv")
    try:
        if wanted.image is None:
            return {name: ToArray(shape[0], shape[1:], wanted.crop)(data).image}
        if kind_of(data) is None:
            data = ToEncoded("png")(data).image
        stored = np.frombuffer(data, np.uint8)
        out = np.empty(shape, np.uint8)
        with decodable():
            size, orientation = sides_of(stored)
            sides = np.array(size)
            window = centre_windows(sides[None], wanted.image.shorter, wanted.image.size)[0]
            take(stored, orientation, sides, window, out)
        return {name: out}
    except RecordError as error:
        raise RecordError(f"{called}: {error}") from None


def _fitting(path: Path, array: Array, name: str, wanted: NetInputs) -> Array:
    """One sample's array. Raises RecordError where it differs from training."""
    shape, dtype = wanted.inputs[name]
    called = "" if len(wanted.inputs) == 1 else f"{name} "
    if array.shape != shape:
        raise RecordError(f"{path}: {called}must be {shape} for a sample, as in training, got {array.shape}")
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise RecordError(f"{path}: {called}must be {dtype} as in training, got {array.dtype}")
    return array
