"""Writes ratings of items by users as records: mpibow convert ratings --source u.data --output data/ratings

Each line has user, item and rating; further columns are ignored. Columns are separated by ::, or as in CSV files, as in
MovieLens' u.data, ratings.dat and ratings.csv; the first line may name the columns. Users and items are renumbered
0, 1, ... in the order of their numbers. The converter prints how many there are: the model's settings need it.
"""

import argparse
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mpibow.convert import arguments
from mpibow.convert.conversion import Part, file_checksum, write_parts
from mpibow.convert.labels import set_aside
from mpibow.convert.table_files import read_text, rows_of
from mpibow.data.columns import PLAIN
from mpibow.data.ratings import MOST, record_of
from mpibow.errors import RecordError
from mpibow.system.streams import as_command

NAMES = ("u.data", "ratings.dat", "ratings.csv")  # MovieLens' 100K, 1M and 10M, and later sets
INTEGER = re.compile(r"\s*[+-]?\d{1,18}\s*", re.ASCII)


def convert(source: Path, output: Path, *, test_fraction: float = 0.1, seed: int = 1, overwrite: bool = False) -> None:
    """Writes output/train and output/test and verifies them, both or nothing; prints the numbers of users and items.

    Raises RecordError, naming the line that is no rating.
    """
    arguments.prepare(output, overwrite)
    path = _file(source)
    rows = list(_rows(path))
    if not rows:
        raise RecordError(f"{path}: has no ratings")
    numbers = [np.unique([row[column] for row in rows], return_inverse=True) for column in (0, 1)]
    users, items = (len(there) for there, _ in numbers)
    for what, count in (("users", users), ("items", items)):
        if count > MOST:
            raise RecordError(f"{path}: has {count:,} {what}, records hold at most {MOST:,}")
    about = f"{path.name}: {users} users, {items} items; {test_fraction} set aside to test, seed {seed}"
    sources, parts = {path.name: file_checksum(path)}, {}
    for name, which in set_aside(range(len(rows)), None, test_fraction, seed, path).items():
        samples = (record_of(numbers[0][1][n], numbers[1][1][n], rows[n][2]) for n in which)
        parts[name] = Part(len(which), samples, sources=sources)
    write_parts(output, parts, classes=1, source=about, overwrite=overwrite)
    print(f"model: {{name: matrix_factorisation, users: {users}, items: {items}}}")


def _file(source: Path) -> Path:
    """The file itself, or MovieLens' file in the folder."""
    if not source.is_dir():
        return source
    there = [source / name for name in NAMES if (source / name).is_file()]
    if len(there) != 1:
        raise RecordError(f"{source}: must hold one of {', '.join(NAMES)}, it has {len(there)}; name the file")
    return there[0]


def _rows(path: Path) -> Iterator[tuple[int, int, float]]:
    for n, (line, cells) in enumerate(rows_of(path, text=read_text(path).replace("::", "\t"))):
        numbers = [PLAIN.number(cell) for cell in cells[:3]]
        if n == 0 and len(cells) >= 3 and not any(number is not None for number in numbers):
            if not cells[0].strip():
                raise RecordError(
                    f"{path}: line {line}: column 1 has no name, as pandas' index; write the file without it"
                )
            for column, word in ((0, "user"), (2, "rating")):
                if [place for place, cell in enumerate(cells) if word in cell.lower()] not in ([], [column]):
                    raise RecordError(
                        f"{path}: line {line}: column {column + 1} must be the {word}, got {cells[column]!r}; write "
                        "user, item and rating in this order"
                    )
            continue  # the columns' names
        rating = numbers[2] if len(cells) > 2 and all(map(INTEGER.fullmatch, cells[:2])) else None
        if rating is None or not math.isfinite(rating):
            raise RecordError(f"{path}: line {line}: must be user, item and rating, got {' '.join(cells)[:60]!r}")
        yield int(cells[0]), int(cells[1]), rating


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("ratings", __doc__)
    arguments.add_source(made, f"the file, or a folder that holds one of {', '.join(NAMES)}")
    arguments.add_output(made, "data/ratings")
    made.add_argument(
        "--test-fraction",
        type=arguments.fraction,
        default=0.1,
        metavar="X",
        help="share of the ratings to split off as test data, above 0 and below 1 (default: %(default)s)",
    )
    arguments.add_shared(made, "seed", "overwrite")
    return made


main = arguments.command(parser, convert)

if __name__ == "__main__":
    as_command(main)
