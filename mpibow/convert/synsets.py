"""ImageNet's lists: synsets (n01440764), whose sorted order numbers the classes, and validation labels."""

import re
from collections.abc import Sequence
from pathlib import Path

from mpibow.errors import RecordError

from .table_files import rows_of

SYNSET = re.compile(r"n\d{8}", re.ASCII)
KNOWN = "imagenet_2012_validation_synset_labels.txt"  # a synset a line, as TensorFlow's scripts have it
NAMED = 5


def synsets(path: Path) -> list[str]:
    """The first synset of every line, in the file's order. Raises RecordError where a line has none or it is twice."""
    found = dict[str, int]()
    for number, words in _rows(path):
        match = next((word for word in words if SYNSET.fullmatch(word)), None)
        if match is None:
            raise RecordError(f"{path}: line {number}: has no synset such as n01440764, got {' '.join(words)[:40]!r}")
        if match in found:
            raise RecordError(f"{path}: line {number}: {match} is on line {found[match]} already")
        found[match] = number
    if not found:
        raise RecordError(f"{path}: has no synsets")
    return list(found)


def validation_labels(path: Path, images: Sequence[str], listed: Sequence[str] | None = None) -> list[str]:
    """The synset of every image, given their sorted names.

    A line has one label, and lines follow the images' sorted names; or it has an image's name, its label and more
    columns, which are ignored (also with commas, as LOC_val_solution.csv). Labels are synsets, or numbers that count
    the synsets `listed`, from 0 or 1.
    """
    rows = [words for _, words in _rows(path)]
    if rows and len(rows[0]) > 1 and not _is_label(rows[0][1]):
        del rows[0]  # a heading
    if all(len(row) == 1 for row in rows):
        if len(rows) != len(images):
            raise RecordError(f"{path}: has {len(rows):,} labels, there are {len(images):,} images")
        labels = [row[0] for row in rows]
    else:
        table = {Path(row[0]).stem: row[1] for row in rows if len(row) > 1}
        unknown = [image for image in images if Path(image).stem not in table]
        if unknown:
            raise RecordError(f"{path}: has no label for {len(unknown):,} images, such as {', '.join(unknown[:NAMED])}")
        labels = [table[Path(image).stem] for image in images]
    for label in labels:
        if not _is_label(label):
            raise RecordError(f"{path}: a label is a synset such as n01440764, or a number, got {label[:40]!r}")
    if all(map(SYNSET.fullmatch, labels)):
        return labels
    return _numbered(path, labels, listed)


def _numbered(path: Path, labels: list[str], listed: Sequence[str] | None) -> list[str]:
    instead = f"use a list of synsets instead, such as {KNOWN}"
    if any(map(SYNSET.fullmatch, labels)):
        raise RecordError(f"{path}: mixes synsets and numbers; {instead}")
    if listed is None:
        raise RecordError(f"{path}: labels are numbers; pass the synsets that they count, --synsets, or {instead}")
    if "ground_truth" in path.name and list(listed) == sorted(listed):
        raise RecordError(
            f"{path}: its numbers are those of ILSVRC's development kit, --synsets is in sorted order; "
            f"pass --synsets in the kit's order, or {instead}"
        )
    numbers = [int(label) for label in labels]
    least = min(numbers)
    most = max(numbers)
    if (least == 0) == (most == len(listed)) or most > len(listed):
        raise RecordError(
            f"{path}: numbers of {len(listed):,} synsets go from 0 to {len(listed) - 1:,} or 1 to {len(listed):,}, "
            f"got {least:,} to {most:,}; {instead}"
        )
    return [listed[number - (least != 0)] for number in numbers]


def _is_label(text: str) -> bool:
    return bool(SYNSET.fullmatch(text)) or (text.isascii() and text.isdigit() and len(text) < 10)


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """The words of every line, separated by spaces or as cells."""
    return [(line, [word for cell in cells for word in cell.split()]) for line, cells in rows_of(path, ",")]
