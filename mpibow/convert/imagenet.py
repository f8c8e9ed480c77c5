"""Finds ImageNet in any of its forms: TensorFlow's TFRecords, ILSVRC's tar files, or a tree of folders."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpibow.convert import tar
from mpibow.data.aside import refused
from mpibow.errors import RecordError

from .conversion import Each, watched
from .entries import NAMED, Entries, ImageGroup, refuse_empty_and_twice
from .folders import hidden, part_of
from .source_files import mapped
from .synsets import SYNSET, validation_labels

TARS = {"train": "ILSVRC2012_img_train.tar", "validation": "ILSVRC2012_img_val.tar"}
SYNSET_TAR = re.compile(rf"{SYNSET.pattern}\.tar", re.ASCII)
SHARD = re.compile(r"\w+-\d{5}-of-\d{5}(\.tfrecords?)?")
SUFFIXES = (".jpeg", ".jpg", ".png")
FORMS = """  train-00000-of-01024 ..., validation-00000-of-00128 ...   TensorFlow's TFRecords; or in train/, validation/
  ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar          as published; or train/n01440764.tar ...
  train/n01440764/*.JPEG ..., val/n01440764/*.JPEG ...      folders of classes; or validation/..., or val/*.JPEG"""


@dataclass(frozen=True)
class PartFiles:
    """The files of a part: form is tfrecords, tar (of tars), tars or folders (a class each), or
    flat (a tar) or images (a folder) without classes."""

    form: str
    paths: tuple[Path, ...]


class ClassPlace(NamedTuple):
    """A class's images: a folder, or the tar that is bytes [start, stop) of a file."""

    synset: str
    root: str
    title: str
    file: str
    start: int
    stop: int | None


def find(source: Path, part: str) -> PartFiles | None:
    """The files of train or validation below `source`. Raises RecordError where there are several forms."""
    names = _names(source)
    folders = [source / name for name in names if part_of(name) == part and (source / name).is_dir()]
    everything = {source: names} | {folder: _names(folder) for folder in folders}

    def matching(pattern: re.Pattern[str], folders: Iterable[Path]) -> list[Path]:
        return [folder / name for folder in folders for name in everything[folder] if pattern.fullmatch(name)]

    candidates = {
        "tfrecords": [path for path in matching(SHARD, everything) if part_of(path.name) == part],
        "tar" if part == "train" else "flat": [source / TARS[part]] if TARS[part] in everything[source] else [],
        "tars": matching(SYNSET_TAR, folders),
        "folders": matching(SYNSET, folders),
        "images": [f for f in folders if part != "train" and any(map(_is_image, everything[f]))],
    }
    there = {form: tuple(paths) for form, paths in candidates.items() if paths}
    if len(there) > 1 or len({path.parent for paths in there.values() for path in paths}) > 1:
        firsts = sorted({str(path) for paths in there.values() for path in {p.parent: p for p in paths[::-1]}.values()})
        raise RecordError(f"{source}: {part} is there several times: {', '.join(firsts)}; move all but one elsewhere")
    return next(starmap(PartFiles, there.items()), None)


def places(found: PartFiles) -> list[ClassPlace]:
    """The classes of a part in tar, tars or folders, sorted by synset."""
    if found.form == "tar":
        (path,) = found.paths
        return sorted(_inner(path, member) for member in tar.members(mapped(path), str(path)))
    root = found.paths[0].parent
    return sorted(ClassPlace(path.stem, str(root), f"{path.name}/", str(path), 0, None) for path in found.paths)


def listed(each: Each, found: PartFiles, classes: Sequence[str]) -> Entries:
    """The images of a part in tar, tars or folders, sorted by class and name; a class is a synset's place in `classes`.

    Raises RecordError where a synset is not in `classes`, and names empty images and duplicates.
    """
    there = places(found)
    table = _numbers(there[0].root if there else "", {place.synset for place in there}, classes)
    entries = Entries(watched(each(partial(_group, table), there), len(there), "look through", " classes"))
    refuse_empty_and_twice(entries)
    if not len(entries):
        raise RecordError(f"{found.paths[0].parent}: has no images ({', '.join(SUFFIXES)})")
    return entries


def flat(
    found: PartFiles, classes: Sequence[str], labels: Path | None, numbered: Sequence[str] | None
) -> tuple[Entries, list[str]]:
    """The images of a part without classes, ILSVRC2012_img_val.tar or val/*.JPEG, labelled from the file `labels`.

    Also returns the classes: those of the file where `classes` has none.
    """
    (path,) = found.paths
    if labels is None:
        raise RecordError(
            f"{path}: its images' labels are not in it; pass them by --validation-labels, a synset a line, such as "
            "imagenet_2012_validation_synset_labels.txt"
        )
    folder, title = (path.parent, f"{path.name}: ") if found.form == "flat" else (path, "")
    group = _group({"": 0}, ClassPlace("", str(folder), title, str(path), 0, None))
    refuse_empty_and_twice(Entries([group]))
    synsets = validation_labels(labels, [Path(str(name)).name for name in group.names], numbered)
    classes = list(classes) or sorted(set(synsets))
    table = _numbers(str(labels), set(synsets), classes)
    return Entries([replace(group, labels=np.array([table[synset] for synset in synsets], np.int32))]), classes


def class_names(called: Mapping[int, str], names: Sequence[str], count: int, where: Path) -> list[str]:
    """The synsets of classes, for TFRecords that have them as `called`; [] where neither they nor `names` do."""
    for label, name in sorted(called.items()):
        if names and (label >= len(names) or names[label] != name):
            other = names[label] if label < len(names) else "none"
            raise RecordError(
                f"{where}: label {label + 1} is {name}, synset {label + 1} in sorted order is {other}; "
                "is --synsets the list of these files?"
            )
    if names and count > len(names):
        raise RecordError(f"{where}: has label {count}, there are {len(names):,} classes")
    return list(names) or [called.get(number, f"unknown-{number + 1}") for number in range(count if called else 0)]


def _numbers(where: str, synsets: set[str], classes: Sequence[str]) -> dict[str, int]:
    """The number of each class. Raises RecordError where a synset is none of them."""
    if unknown := sorted(synsets - set(classes)):
        raise RecordError(
            f"{where}: {len(unknown):,} of its synsets are not among the {len(classes):,} classes: "
            f"{', '.join(unknown[:NAMED])}; pass a complete list by --synsets"
        )
    return {synset: number for number, synset in enumerate(classes)}


def _inner(path: Path, member: tar.Member) -> ClassPlace:
    name = Path(member.name).name
    if not SYNSET_TAR.fullmatch(name):
        raise RecordError(f"{path}: must hold tars of synsets such as n01440764.tar, holds {member.name}")
    title = f"{path.name}: {name}/"
    return ClassPlace(name[:-4], str(path.parent), title, str(path), member.start, member.start + member.size)


def _group(table: Mapping[str, int], place: ClassPlace) -> ImageGroup:
    """The images of a place, sorted by name; `table` numbers the synsets."""
    path = Path(place.file)
    if path.is_dir():
        with refused(path, "read"), os.scandir(path) as files:
            sizes = {file.name: file.stat().st_size for file in files if file.is_file()}
        images = [tar.Member(name, 0, sizes[name]) for name in sorted(sizes) if _is_image(name)]
    else:
        where = f"{place.root}/{place.title}".rstrip("/: ")
        there = tar.members(mapped(path), where, place.start, place.stop)
        images = sorted(there, key=lambda member: Path(member.name).name)
    names, starts, sizes_of = zip(*images, strict=True) if images else ((), (), ())
    return ImageGroup(
        place.root,
        place.title,
        place.file,
        names,
        None if path.is_dir() else np.array(starts, np.int64),
        np.array(sizes_of, np.int64),
        np.full(len(names), table[place.synset], np.int32),
    )


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not hidden(name)


def _names(folder: Path) -> list[str]:
    with refused(folder, "read"):
        return sorted(os.listdir(folder))


def wanted(source: Path) -> str:
    """The message that lists the forms to place there."""
    return f"{source}: holds ImageNet in no known form; place one of these there, or pass another --source:\n{FORMS}"


def synset_table(train: PartFiles | None, validation: PartFiles | None, complete: Sequence[str] | None) -> list[str]:
    """The classes, sorted: those of the `complete` list or, without one, of the first part that has their names."""
    if complete is not None:
        return sorted(complete)
    for part in (train, validation):
        if part is not None and part.form in ("tar", "tars", "folders"):
            return [place.synset for place in places(part)]
    return []
