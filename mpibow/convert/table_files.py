"""CSV and Parquet files as columns of cells, and other text files of rows, each row with its place in the file."""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from mpibow.data.aside import refused
from mpibow.data.columns import PLAIN, Cells
from mpibow.errors import RecordError, install

from .source_files import opened

SEPARATORS = ",;\t|"
NAMED = re.compile(r'"?sep=(.)"?[\r\n]*')  # the first line that Excel understands
COMMENT = re.compile(r"#([#!\s]|[^,;\t|]*$)")
PACKED = (b"PK\3\4", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\xd0\xcf\x11\xe0")  # zip, gzip, ..., xls
Row = tuple[int, list[str]]


def read_text(path: Path) -> str:
    """The text of a file, unpacked if it ends in .gz or .xz: UTF-8, or UTF-16 with a mark. Raises RecordError."""
    with opened(path) as file:
        data = file.read()
    if data.startswith(PACKED):
        raise RecordError(f"{path}: is an archive or a workbook; unpack it, or save the sheet as CSV")
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        remedy = f"convert the file, as iconv -f latin1 -t utf-8 '{path.name}' does"
        raise RecordError(f"{path}: line {line}: byte 0x{byte:02x} is not text in UTF-8; {remedy}") from error
    if "\0" in text:
        raise RecordError(
            f"{path}: line {text[: text.index(chr(0))].count(chr(10)) + 1}: has a NUL; is it text in UTF-8?"
        )
    return text


def rows_of(path: Path, separators: str = SEPARATORS, text: str | None = None) -> list[Row]:
    """The rows that are not blank, by that separator which gives all of them the cells of the first, or the most.

    Quotes, also around separators and line ends, follow the csv module; spaces after a separator are left out.
    A first line such as sep=; names the separator. `text` replaces the file's. Raises RecordError, naming the line.
    """
    lines = list(io.StringIO(read_text(path) if text is None else text, newline=""))
    if lines and (match := NAMED.fullmatch(lines[0])):
        separators = match[1]
        lines[0] = "\n"
    first = next((line for line in lines if line.strip()), "")
    if COMMENT.match(first.rstrip("\r\n")):
        raise RecordError(
            f"{path}: line {lines.index(first) + 1}: is a comment, got {first[:40].rstrip()!r}; remove it, or its # if "
            "it names the columns"
        )
    widths = {separator: width for separator in separators if (width := next(_widths(lines, separator), 0)) > 1}
    if len(widths) > 1:
        even = {separator: width for separator, width in widths.items() if {*_widths(lines, separator)} == {width}}
        widths = even or widths
    best = [separator for separator, width in widths.items() if width == max(widths.values())]
    if len(best) > 1:
        both = " and ".join(map(repr, best))
        raise RecordError(f"{path}: {both} separate as many cells; write sep={best[0]} as the first line of the file")
    try:
        return list(_rows(lines, (best or separators)[0]))
    except csv.Error as error:
        raise RecordError(
            f"{path}: line {error.args[1]}: {error.args[0]}; is a quote missing or not doubled?"
        ) from None


def check_widths(path: Path, rows: Sequence[Row]) -> None:
    """Raises RecordError for the first row with more or fewer cells than row 0."""
    start, heads = rows[0]
    for line, cells in rows:
        if len(cells) != len(heads):
            comment = next((f"; is line {n} a comment?" for n, at in ((line, cells), rows[0]) if at[0][:1] == "#"), "")
            raise RecordError(f"{path}: line {line}: has {len(cells)} cells, line {start} has {len(heads)}{comment}")


def _rows(lines: Sequence[str], separator: str) -> Iterator[Row]:
    """Raises csv.Error with its message and the line where the row begins."""
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise csv.Error(str(error), line) from None
        if len(cells) > 1 or (cells and cells[0].strip()):
            yield line, cells


def _widths(lines: Sequence[str], separator: str) -> Iterator[int]:
    """The cells of every row, up to one that cannot be read with this separator: 0."""
    try:
        for _, cells in _rows(lines, separator):
            yield len(cells)
    except csv.Error:
        yield 0


PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class SourceTable:
    """Cells by the names of columns, and the place of each row in its file: `unit` and number."""

    path: Path
    heads: str  # where the names of columns are
    columns: Mapping[str, Cells]
    rows: Sequence[int]
    unit: str = "line"

    def where(self, row: int) -> str:
        return f"{self.path}: {self.unit} {self.rows[row]}"

    def take(self, rows: Sequence[int]) -> "SourceTable":
        columns = {name: [cells[n] for n in rows] for name, cells in self.columns.items()}
        return replace(self, columns=columns, rows=[self.rows[n] for n in rows])


def read_table(path: Path) -> SourceTable:
    """A CSV file whose first row names the columns, or a Parquet file. Raises RecordError, also where it has no rows.

    Spaces and line ends in a name become single spaces. A column without a name is called as pandas does, Unnamed: 0.
    """
    table = _parquet(path) if path.suffix.lower() in PARQUET else _csv(path)
    if not table.rows:
        raise RecordError(f"{path}: has no rows")
    return table


def _csv(path: Path) -> SourceTable:
    rows = rows_of(path)
    if not rows:
        raise RecordError(f"{path}: is empty; its first line must name the columns")
    (line, heads), *others = rows
    names = [" ".join(name.split()) or f"Unnamed: {place}" for place, name in enumerate(heads)]
    for name in names:
        if names.count(name) > 1:
            raise RecordError(f"{path}: line {line}: every column needs a name of its own, got {name!r} twice")
    check_widths(path, rows)
    columns = dict(zip(names, zip(*(cells for _, cells in others), strict=True), strict=True)) if others else {}
    if any(not float(PLAIN.number(name) or 0).is_integer() for name in names) or all(
        PLAIN.number(name) is not None or name in columns.get(name, ()) for name in names
    ):
        raise RecordError(f"{path}: line {line}: must name the columns, got values; add a line of names")
    return SourceTable(path, f"{path}: line {line}", columns, [line for line, _ in others])


def _parquet(path: Path) -> SourceTable:
    try:
        parquet = import_module("pyarrow.parquet")
        errors = import_module("pyarrow").ArrowException
    except ImportError:
        raise RecordError(f"{path}: needs the package pyarrow: {install('table')}") from None
    try:
        with refused(path, "read"):
            table = parquet.read_table(path)
        if len(set(table.column_names)) < table.num_columns:
            raise RecordError(f"{path}: every column needs a name of its own, got {', '.join(table.column_names)}")
        columns = table.to_pydict()
    except errors as error:
        raise RecordError(f"{path}: is not a Parquet file that pyarrow reads: {error}") from error
    return SourceTable(path, str(path), columns, range(1, table.num_rows + 1), "row")
