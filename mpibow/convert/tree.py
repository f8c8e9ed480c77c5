"""One folder for each class, with images below it: the parts, the classes, and the kind of images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from mpibow.convert.delimited import rows_of
from mpibow.convert.entries import Each, Entries, Entry, Group, lots, refuse_empty_and_twice, watched
from mpibow.convert.recode import FORMATS, GREY, Decode, Header, Keep, header
from mpibow.errors import RecordError

TESTS = ("test", "val", "validation")
SHOWN = 5


@dataclass(frozen=True)
class Listing:
    """A part's images, and the number of files left out because their names are not those of images."""

    entries: Entries
    left_out: Counter[str]  # by suffix


def parts(source: Path, test: str | None = None) -> dict[str, Path]:
    """Folders of train and test: sub-folders of these names if train has classes in it, else `source` itself is train.

    Raises RecordError where several could be test.
    """
    if not source.is_dir():
        raise RecordError(f"{source}: there is no such folder")
    if not any(entry.is_dir() for entry in _scan(source / "train") if not entry.name.startswith(".")):
        return {"train": source}
    there = [name for name in ((test,) if test else TESTS) if (source / name).is_dir()]
    if test and not there:
        raise RecordError(f"{source}: has no folder {test} (--test-folder)")
    if len(there) > 1:
        raise RecordError(f"{source}: has the folders {', '.join(there)}; choose the one to test on by --test-folder")
    return {"train": source / "train"} | ({"test": source / there[0]} if there else {})


def folders(part: Path) -> list[str]:
    """The class folders, sorted."""
    found = sorted(entry.name for entry in _scan(part) if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise RecordError(f"{part}: has no folders, a folder a class of images was expected")
    return found


def mapping(path: Path) -> dict[str, str]:
    """Class by folder: lines of folder, tab, class. Several folders may be one class."""
    found: dict[str, str] = {}
    for number, cells in rows_of(path, "\t"):
        folder, name = cells[0].strip(), "\t".join(cells[1:]).strip()
        if not (folder and name):
            raise RecordError(f"{path}: line {number}: must be folder, tab, class, got {' '.join(cells)[:60]!r}")
        if folder in found:
            raise RecordError(f"{path}: line {number}: {folder} is there already, of class {found[folder]}")
        found[folder] = name
    if not found:
        raise RecordError(f"{path}: has no lines of folder, tab, class")
    return found


def classes_of(found: Mapping[str, Sequence[str]], source: Path, chosen: Mapping[str, str] | None) -> dict[str, int]:
    """The class number of every folder: its place in sorted order or, where classes are `chosen`, that of its class.

    Chosen classes are numbered in the given order; `found` are the folders of every part.
    """
    every = sorted({folder for part in found.values() for folder in part})
    if chosen is None:
        return {folder: number for number, folder in enumerate(every)}
    if unknown := [folder for folder in every if folder not in chosen]:
        names = ", ".join(unknown[:SHOWN])
        raise RecordError(
            f"{source}: --classes has no line for {len(unknown):,} of its folders: {names}; add or move them"
        )
    numbers = {name: number for number, name in enumerate(dict.fromkeys(chosen.values()))}
    return {folder: numbers[name] for folder, name in chosen.items()}


def listing(part: Path, numbers: Mapping[str, int]) -> Listing:
    """The images below the class folders, in the order of their own names.

    Names come first, then classes, so that an exported data set, whose names are numbers, keeps its order.
    """
    suffixes = {suffix for suffix, form in Image.registered_extensions().items() if form in Image.OPEN}
    left_out: Counter[str] = Counter()
    groups = []
    for folder in folders(part):
        found = {}
        for name, size in walk(part / folder):
            if Path(name).suffix.lower() in suffixes:
                found[name] = size
            else:
                left_out[Path(name).suffix or name] += 1
        labels = np.full(len(found), numbers[folder], np.int32)
        sizes = np.array(list(found.values()), np.int64)
        groups.append(Group(str(part), f"{folder}/", str(part / folder), list(found), None, sizes, labels))
    names = [(str(name), group.title) for group in groups for name in group.names]
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    entries = Entries(groups, order)
    refuse_empty_and_twice(entries)
    if not len(entries):
        raise RecordError(f"{part}: has no images in its folders")
    return Listing(entries, left_out)


def walk(folder: Path) -> Iterator[tuple[str, int]]:
    """Names below `folder` and sizes of all files but hidden ones, sorted; links are followed, in circles once."""
    seen: set[tuple[int, int]] = set()

    def below(path: Path, prefix: str) -> Iterator[tuple[str, int]]:
        there = path.stat()
        if (there.st_dev, there.st_ino) in seen:
            return
        seen.add((there.st_dev, there.st_ino))
        for entry in sorted(_scan(path), key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from below(path / entry.name, f"{prefix}{entry.name}/")
            else:
                try:
                    yield f"{prefix}{entry.name}", entry.stat().st_size
                except OSError as error:
                    raise RecordError(f"{entry.path}: cannot be read: {(error.strerror or '').lower()}") from error

    yield from below(folder, "")


def maker(
    each: Each, listings: Mapping[str, Entries], encode: str | None, size: tuple[int, int] | None, crop: bool
) -> tuple[str, Keep | Decode]:
    """The records' encoding and the function that encodes a file so, after reading the headers of all images.

    `encode` is jpeg, png or raw, None for the encoding that all files have. Raises RecordError where that does not fit.
    """
    formats: Counter[str] = Counter()
    sizes: dict[tuple[int, int], str] = {}
    grey = True
    for entries in listings.values():
        headers = (one for lot in each(_headers, lots(entries)) for one in lot)
        found = watched(headers, len(entries), "look at headers", " images")
        for entry, (name, mode, shape) in zip(entries, found, strict=True):
            formats[next((kind for kind, names in FORMATS.items() if name in names), name)] += 1
            sizes.setdefault(shape, entry.where)
            grey = grey and mode in GREY
    if encode is None:
        encode = next(iter(formats))
        if len(formats) > 1 or encode not in FORMATS:
            counts = ", ".join(f"{count:,} {name.upper()}" for name, count in formats.most_common())
            raise RecordError(
                f"{next(iter(listings.values()))[0].root}: images are {counts}, records are all JPEG or all PNG; "
                "pass --encode jpeg, --encode png (which loses nothing) or --encode raw"
            )
    if encode != "raw":
        return encode, Keep(encode, decode=True, size=size, crop=crop)
    if size is None and len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        raise RecordError(
            f"raw images have one size, {first} has {one[0]}x{one[1]} and {second} {other[0]}x{other[1]}; "
            "pass --size HEIGHTxWIDTH"
        )
    return "raw", Decode(1 if grey else 3, size, crop)


def _headers(lot: list[Entry]) -> list[Header]:
    return [header(Path(entry.file)) for entry in lot]


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"{folder}: cannot be read: {(error.strerror or str(error)).lower()}") from error
