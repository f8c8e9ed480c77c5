"""One folder for each class, with images below it: the parts, the classes, and the kind of images."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpibow.data.aside import file_size
from mpibow.errors import RecordError
from mpibow.system.command import some

from .conversion import Each, watched
from .entries import Entries, Entry, ImageGroup, lots, refuse_empty_and_twice
from .folders import PARTS, Left, filled, identity, part_of, say_left, scan, unwrapped, walk
from .recode import FORMATS, GREY, ImageHeader, ToArray, ToEncoded, header
from .table_files import rows_of

PAIRED = re.compile("(jpeg|png)?(image|img|picture)s?|masks?|labels?|annotations?", re.IGNORECASE)


@dataclass(frozen=True)
class ClassFolders:
    """The folder of a part, and the names of images below each of its class folders."""

    path: Path
    images: Mapping[str, Sequence[str]]


def parts(source: Path, chosen: Mapping[str, str], *, classes: bool = True) -> dict[str, Path]:
    """The folders of train, validation and test below `source`: those `chosen`, or by their names, or `source` alone.

    They hold `classes`, folders of images, or just images. A part for validation is the one to test where there is no
    other. Says what is left out. Raises RecordError where names leave a choice.
    """
    if not source.is_dir():
        what = "is a file; unpack it, and give the folder" if source.is_file() else "there is no such folder"
        raise RecordError(f"{source}: {what}")
    left = Left()
    inner = unwrapped(source, left)
    found = {part: _chosen(part, name, source, inner) for part, name in chosen.items()}
    used = {identity(path) for path in found.values()}
    names = [name for name in filled(inner) if identity(inner / name) not in used]
    by_part = dict[str, list[str]]()
    for name in names if identity(inner) not in used else ():
        if (part := part_of(name)) is not None and part not in found:
            by_part.setdefault(part, []).append(name)
    others = [name for name in names if part_of(name) is None]
    trains = by_part.get("train", ()) if classes and others and not found and len(by_part) == 1 else ()
    if trains and not any(filled(inner / name) for name in trains):
        by_part = {}  # a class of trains
    for part, there in by_part.items():
        if len(there) > 1:
            raise RecordError(f"{inner}: has {' and '.join(there)}; choose the one for {part} by --{part}-folder")
        found[part] = inner / there[0]
    if not found:
        found = {"train": inner}
    elif "train" not in found or (others and [*found] == ["train"] and not chosen):
        raise RecordError(
            f"{inner}: has the folders {some(names)}; say which are parts "
            "by --train-folder, --validation-folder and --test-folder, or that none is by --train-folder ."
        )
    by_identity = dict[tuple[int, int], str]()
    for part, path in found.items():
        if (other := by_identity.setdefault(identity(path), part)) != part:
            raise RecordError(f"{path}: is the folder of both {other} and {part}")
    if identity(inner) not in by_identity:
        folders, images = scan(inner, left)
        left["image outside the parts"] += len(images)
        left.update(f"folder '{name}', not a part" for name in folders if identity(inner / name) not in by_identity)
    say_left(source, +left)
    if "test" not in found and "validation" in found and "validation" not in chosen:
        found["test"] = found.pop("validation")
    return {part: found[part] for part in PARTS if part in found}


def _chosen(part: str, name: str, source: Path, inner: Path) -> Path:
    for folder in (source, inner):
        if (folder / name).is_dir():
            return inner if name == "." else folder / name
    raise RecordError(f"{source}: has no folder {name} (--{part}-folder)")


def class_folders(paths: Mapping[str, Path]) -> dict[str, ClassFolders]:
    """Of all parts, train first. Says what is left out. Raises RecordError where a part has none, or parts below."""
    found = dict[str, ClassFolders]()
    for part, path in paths.items():
        left = Left()
        inner = unwrapped(path, left, part_of(path.name), found["train"].images if found else ())
        folders, images = scan(inner, left)
        left["image outside the class folders"] += len(images)
        there = {
            name: [*walk(inner / name, left)]
            for name in folders
            if not any(other.samefile(inner / name) for other in paths.values() if other != path)
        }
        left.update(f"folder '{name}' without images" for name, names in there.items() if not names)
        say_left(inner, +left)
        found[part] = ClassFolders(inner, {name: names for name, names in there.items() if names})
        if not found[part].images:
            raise RecordError(
                f"{inner}: has no folders with images, a folder a class was expected"
                + (f"; images in it: {len(images):,}" if images else "")
                + (f"; --source {paths['train']} leaves this part out" if part != "train" else "")
            )
        for name, names in found[part].images.items():
            below = sorted({image.partition("/")[0] for image in names if "/" in image})
            if len({part_of(folder) for folder in below} - {None}) > 1:
                raise RecordError(
                    f"{inner / name}: has the folders {', '.join(below)}; parts come first, and then classes; "
                    "give the folders of the parts by --train-folder and --test-folder"
                )
    return found


def mapping(path: Path) -> dict[str, str]:
    """Class by folder: lines of folder, tab, class. Several folders may be one class."""
    found = dict[str, str]()
    for number, cells in rows_of(path, "\t"):
        folder = cells[0].strip()
        name = "\t".join(cells[1:]).strip()
        if not (folder and name):
            raise RecordError(f"{path}: line {number}: must be folder, tab, class, got {' '.join(cells)[:60]!r}")
        if folder in found:
            raise RecordError(f"{path}: line {number}: {folder} is there already, of class {found[folder]}")
        found[folder] = name
    if not found:
        raise RecordError(f"{path}: has no lines of folder, tab, class")
    return found


def classes_of(
    found: Mapping[str, ClassFolders], source: Path, chosen: Mapping[str, str] | None
) -> tuple[dict[str, int], list[str]]:
    """The class number of every folder, and the names of classes.

    Classes are numbered in the sorted order of folders or, where they are `chosen`, in theirs. Says which each part
    has. Raises RecordError where folders are hardly two classes, or training lacks a class.
    """
    every = sorted({folder for part in found.values() for folder in part.images})
    seen = dict[tuple[int, int], Path]()
    for part in found.values():
        for folder in part.images:
            path = part.path / folder
            if (other := seen.setdefault(identity(path), path)) != path:  # their images would be twice
                raise RecordError(f"{path}: is {other}, by a link; remove one of them")
    if chosen is None:
        _refuse_alike(every, source)
        chosen = {folder: folder for folder in every}
    elif unknown := [folder for folder in every if folder not in chosen]:
        raise RecordError(f"{source}: --classes has no line for its folders {some(unknown)}; add or move them")
    classes = [*dict.fromkeys(chosen.values())]
    there = {name: {chosen[folder] for folder in part.images} for name, part in found.items()}
    for name, part in found.items():
        if lacking := sorted(there[name] - there["train"]):
            raise RecordError(
                f"{part.path}: has images of {some(lacking)}, {found['train'].path} has none; a class has one name in "
                "all parts, and images to train on"
            )
        count = sum(map(len, part.images.values()))
        none = sorted(there["train"] - there[name])
        print(
            f"{part.path}: {name}, {count:,} images of {len(there[name]):,} classes ({some(sorted(there[name]))})"
            + (f", none of {some(none)}" if none else "")
        )
    return {folder: classes.index(name) for folder, name in chosen.items()}, classes


def _refuse_alike(folders: Sequence[str], source: Path) -> None:
    seen = dict[str, str]()
    for folder in folders:
        other = seen.setdefault(unicodedata.normalize("NFC", folder).strip().casefold(), folder)
        if other != folder:
            raise RecordError(
                f"{source}: the folders {other!a} and {folder!a} differ in case, blanks or Unicode's form "
                "alone; rename one, or give all folders' classes by --classes"
            )
    if all(map(PAIRED.fullmatch, folders)):
        raise RecordError(
            f"{source}: images and masks, or other labels, are not classes: {', '.join(folders)}; give the folder with "
            "folders of classes, or --source IMAGES --masks MASKS; or list the classes by --classes"
        )
    if len(folders) == 1:
        raise RecordError(
            f"{source}: has one class alone, {folders[0]}; a folder a class was expected; if it is meant, list it by "
            "--classes"
        )


def entries_of(part: ClassFolders, numbers: Mapping[str, int]) -> Entries:
    """The images of a part, in the order of their own names.

    Names come first, then classes, so that an exported data set, whose names are numbers, keeps its order.
    """
    groups = []
    for folder, images in part.images.items():
        labels = np.full(len(images), numbers[folder], np.int32)
        sizes = np.array([file_size(part.path / folder / name) for name in images], np.int64)
        groups.append(ImageGroup(str(part.path), f"{folder}/", str(part.path / folder), images, None, sizes, labels))
    names = [(str(name), group.title) for group in groups for name in group.names]
    entries = Entries(groups, np.array(sorted(range(len(names)), key=names.__getitem__), np.int64))
    refuse_empty_and_twice(entries)
    return entries


def maker(
    each: Each, listings: Mapping[str, Entries], encode: str | None, size: tuple[int, int] | None, crop: bool
) -> tuple[str, ToEncoded | ToArray]:
    """The records' encoding and the function that encodes a file so, after reading the headers of all images.

    `encode` is jpeg, png or raw, None for the encoding that all files have. Raises RecordError where that does not fit.
    """
    formats = Counter[str]()
    sizes = dict[tuple[int, int], str]()
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
        return encode, ToEncoded(encode, decode=True, size=size, crop=crop)
    if size is None and len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        raise RecordError(
            f"raw images have one size, {first} has {one[0]}x{one[1]} and {second} {other[0]}x{other[1]}; "
            "pass --size HEIGHTxWIDTH"
        )
    return "raw", ToArray(1 if grey else 3, size, crop)


def _headers(lot: list[Entry]) -> list[ImageHeader]:
    return [header(Path(entry.file)) for entry in lot]
