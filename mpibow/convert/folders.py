"""Folders of images as people keep them: what is an image, what is hidden, and which part a name means."""

import os
import re
from collections import Counter
from collections.abc import Container, Iterator
from operator import attrgetter
from pathlib import Path
from typing import TextIO

from PIL import Image

from mpibow.errors import RecordError
from mpibow.system import reason

SUFFIXES = frozenset(suffix for suffix, form in Image.registered_extensions().items() if form in Image.OPEN)
# What systems put beside the files that people see, in lower case; and all names that begin with a full stop.
HIDDEN = frozenset(
    (
        "__macosx",
        "@eadir",
        "#recycle",
        "$recycle.bin",
        "system volume information",
        "lost+found",
        "thumbs.db",
        "desktop.ini",
    )
)
PARTS = {
    "train": "train(ing|val)?|trn",
    "validation": "val(id(ation|ate)?)?|dev(elopment)?|eval(uation)?",
    "test": "test(s|ing)?|tst|h[eo]ld ?out",
}
GLUED = "((set|data(set)?|image|img|photo|sample|split|part)s?)?"  # to a part's name: trainset, testimages
LISTED = 10  # reasons of a message
Left = Counter[str]  # what is left out: a suffix, or another reason, and how often


def part_of(name: str) -> str | None:
    """The part that a folder's or file's name means, in any case: Train, seg_test, val2017; None where it means none.

    A name for training and validation is training's.
    """
    words = re.sub(r"[\W\d_]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).lower()
    meant = [part for part, pattern in PARTS.items() if re.search(rf"\b({pattern}){GLUED}\b", words)]
    return meant[0] if len(meant) == 1 or meant == ["train", "validation"] else None


def hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in HIDDEN


def scan(folder: Path, left: Left, suffixes: Container[str] = SUFFIXES) -> tuple[list[str], list[str]]:
    """Names of the folders in `folder`, and of its images, or files with `suffixes`, sorted; links are followed.

    All others are counted in `left`. Raises RecordError for what cannot be read.
    """
    folders = []
    images = []
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=attrgetter("name")):
                suffix = os.path.splitext(entry.name)[1]
                if hidden(entry.name):
                    left["hidden"] += 1
                elif entry.is_dir():
                    folders.append(entry.name)
                elif suffix.lower() in suffixes:
                    images.append(entry.name)
                else:
                    left[suffix or entry.name] += 1
    except OSError as error:
        raise RecordError(f"{error.filename or folder}: cannot be read: {reason(error)}") from error
    return folders, images


def walk(folder: Path, left: Left, suffixes: Container[str] = SUFFIXES) -> Iterator[str]:
    """Names of the images, or files with `suffixes`, below `folder`, sorted folder by folder.

    A folder that a link leads to once more, be it one around `folder`, is left out.
    """
    seen = {identity(around) for around in folder.absolute().parents}

    def below(path: Path, prefix: str) -> Iterator[str]:
        if (known := identity(path)) in seen:
            left["linked again"] += 1
            return
        seen.add(known)
        folders, images = scan(path, left, suffixes)
        files = frozenset(images)
        for name in sorted([*folders, *images]):
            if name in files:
                yield f"{prefix}{name}"
            else:
                yield from below(path / name, f"{prefix}{name}/")

    yield from below(folder, "")


def identity(path: Path) -> tuple[int, int]:
    """Two paths of one folder have the same."""
    there = path.stat()
    return there.st_dev, there.st_ino


def filled(folder: Path) -> list[str]:
    """The folders in `folder` with images in them or below."""
    return [name for name in scan(folder, Left())[0] if next(walk(folder / name, Left()), None)]


def unwrapped(folder: Path, left: Left, part: str | None = None, classes: Container[str] = ()) -> Path:
    """The folder below, while there is but one, which is neither another part nor a class: an archive's outer folder.

    A folder without folders of images is a class, and so are those of the names `classes`.
    """
    while True:
        names = filled(folder)
        beside = Left()
        folders, images = scan(folder, beside)
        if images or len(names) != 1 or part_of(names[0]) not in (None, part) or names[0] in classes:
            return folder
        if not filled(folder / names[0]):
            return folder
        left.update(beside + Left(f"folder '{name}' without images" for name in folders if name not in names))
        folder /= names[0]


def say_left(folder: Path, left: Left, file: TextIO | None = None) -> None:
    """Prints how much is left out, by reason."""
    if left:
        reasons = [f"{count:,} {reason}" for reason, count in sorted(left.items())]
        more = [f"{len(reasons) - LISTED:,} more reasons"] if len(reasons) > LISTED else []
        print(f"{folder}: left out: {', '.join([*reasons[:LISTED], *more])}", file=file)
