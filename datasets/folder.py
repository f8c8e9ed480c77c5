"""Writes images in folders, one folder per class, as records.

mpibow convert folder --source data/source/flowers --test-fraction 0.2 --output data/flowers
mpibow convert folder --source data/source/flowers --encode raw --size 64x64 --output data/flowers-64

--source holds class folders, or folders of parts with class folders in them: train, validation and test, by their usual
names in any case (Training, VAL, test_set, ...), or by --train-folder and so on. JPEG files are kept unchanged, and so
are PNG files; other formats that Pillow reads, and mixed formats, are converted as --encode sets. Images are turned
upright by their Exif orientation. Classes are numbered in the sorted order of the folders' names, or as in --classes.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mpibow.convert import arguments, tree
from mpibow.convert.conversion import spreader, write_parts
from mpibow.convert.entries import file_bytes, part_of, split
from mpibow.convert.folders import PARTS
from mpibow.convert.masks import pairs, parts_of, split as split_pairs
from mpibow.data.labelled import IGNORED
from mpibow.system.streams import as_command


def convert(
    source: Path,
    output: Path,
    *,
    classes: Path | None = None,
    folders: Mapping[str, str] = {},
    test_fraction: float | None = None,
    seed: int = 1,
    encode: str | None = None,
    size: tuple[int, int] | None = None,
    crop: bool = False,
    statistics: int = arguments.STATISTICS,
    workers: int = 1,
    overwrite: bool = False,
) -> None:
    """Writes output/train, and other parts that there are, from class folders, and verifies them; all or nothing.

    `folders` names parts' folders.
    """
    arguments.prepare(output, overwrite)
    paths = tree.parts(source, folders)
    arguments.refuse_split(test_fraction, paths.get("test"))
    found = tree.class_folders(paths)
    numbers, names = tree.classes_of(found, source, tree.mapping(classes) if classes else None)
    parts = {name: tree.entries_of(part, numbers) for name, part in found.items()}
    if test_fraction is not None:
        parts |= split(parts["train"], test_fraction, seed, source)
    with spreader(workers) as each:
        encoding, make = tree.maker(each, parts, encode, size, crop)
        made = {
            name: part_of(
                entries,
                file_bytes,
                make,
                each,
                name,
                encoding=encoding,
                statistics=statistics,
            )
            for name, entries in parts.items()
        }
        about = "images in folders, a folder a class" + (f", {classes.name} names classes" if classes else "")
        about += f"; test: {test_fraction} of every class, seed {seed}" if test_fraction else ""
        about += f"; sides {size[0]}x{size[1]}{', cropped' if crop else ''}" if size else ""
        write_parts(
            output,
            made,
            classes=len(names),
            class_names=names,
            source=about,
            overwrite=overwrite,
        )


def convert_masks(
    source: Path,
    masks: Path,
    output: Path,
    *,
    folders: Mapping[str, str] = {},
    test_fraction: float | None = None,
    seed: int = 1,
    size: tuple[int, int] | None = None,
    crop: bool = False,
    workers: int = 1,
    overwrite: bool = False,
) -> int:
    """The same from images and masks; returns the number of classes."""
    arguments.prepare(output, overwrite)
    found = pairs(source, masks, folders)
    arguments.refuse_split(test_fraction, source if "test" in found else None)
    if test_fraction is not None:
        found |= split_pairs(found["train"], test_fraction, seed, source)
    with spreader(workers) as each:
        parts, classes = parts_of(found, each, size, crop)
        about = "images with masks" + (f"; test: {test_fraction}, seed {seed}" if test_fraction else "")
        about += f"; sides {size[0]}x{size[1]}{', cropped' if crop else ''}" if size else ""
        write_parts(output, parts, classes=1, source=about, overwrite=overwrite)
    return classes


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("folder", __doc__)
    arguments.add_source(made, "folder with class folders, or with train and test")
    arguments.add_output(made, "data/folder")
    made.add_argument(
        "--classes",
        type=Path,
        metavar="FILE",
        help="file with lines of folder, tab, class: several folders may form one class",
    )
    for part in PARTS:
        made.add_argument(
            f"--{part}-folder",
            metavar="NAME",
            help=f"folder of the {part} part in --source (default: by its name, in any case"
            + ("; . is --source itself)" if part == "train" else ")"),
        )
    made.add_argument(
        "--masks",
        type=Path,
        metavar="FOLDER",
        help="folder with a mask for each image, of the same name but for the suffix, in place of class folders: its "
        "pixels are numbers of classes from 0, 255 where there is none; records are raw",
    )
    arguments.add_shared(made, "test-fraction", "seed")
    made.add_argument(
        "--encode",
        choices=["jpeg", "png", "raw"],
        help="encoding of the records: jpeg, png (such files are kept unchanged), or raw pixels, all of one size",
    )
    made.add_argument(
        "--size", type=arguments.sides, metavar="HxW", help="height and width to which --encode scales every image"
    )
    made.add_argument("--crop", action="store_true", help="with --size: crop to the aspect ratio instead of distorting")
    arguments.add_shared(made, "statistics", "workers", "overwrite")
    return made


def _fault(options: argparse.Namespace) -> str | None:
    if options.masks and (options.classes or options.encode not in (None, "raw")):
        return "--masks: images have no class folders, and are raw; leave out --classes, --encode"
    if options.size and not (options.encode or options.masks):
        return "--size needs --encode, usually raw"
    return "--crop needs --size" if options.crop and not options.size else None


def run(masks: Path | None, classes: Path | None, encode: str | None, statistics: int, **options: Any) -> None:
    chosen = {part: options.pop(f"{part}_folder") for part in PARTS}
    options["folders"] = {part: name for part, name in chosen.items() if name is not None}
    if masks:
        print(f"masks: {convert_masks(masks=masks, **options)} classes, {IGNORED} is without one")
    else:
        convert(classes=classes, encode=encode, statistics=statistics, **options)


main = arguments.command(parser, run, _fault)

if __name__ == "__main__":
    as_command(main)
