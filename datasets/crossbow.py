"""Writes the ImageNet files of Crossbow's release of 2019 as records: the same JPEGs, in 1,000 classes.

mpibow convert crossbow --source old --output data/imagenet
mpibow convert crossbow --train 'old/train-*' --test 'old/validation-*' --output data/imagenet

Every length in the files is checked. Mean and standard deviation are measured on evenly spaced images only, because
each must be decoded. The files hold no class names, so the records have none either.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mpibow.convert import arguments, crossbow
from mpibow.convert.conversion import Each, Part, spreader, watched, write_parts
from mpibow.convert.entries import Entries, file_bytes, part_of
from mpibow.system.streams import as_command


def convert(
    paths: Mapping[str, Sequence[Path]],
    output: Path,
    *,
    statistics: int = arguments.STATISTICS,
    workers: int = 1,
    overwrite: bool = False,
) -> None:
    """Writes output/train, and output/test if there is one, from files, and verifies them; all of it or nothing.

    `statistics` is the number of images of each that are decoded.
    """
    arguments.prepare(output, overwrite)
    with spreader(workers) as each:
        parts = {name: _part(name, files, each, statistics) for name, files in paths.items()}
        about = "ImageNet (Russakovsky et al., 2015), from the record files of Crossbow's release of 2019"
        counts = " and ".join(f"{min(statistics, part.count):,}" for part in parts.values())
        about += f"; mean and std are those of {counts} of the images"
        write_parts(output, parts, classes=crossbow.CLASSES, source=about, overwrite=overwrite)


def _part(name: str, paths: Sequence[Path], each: Each, statistics: int) -> Part:
    groups, checksums = zip(*watched(each(crossbow.index, paths), len(paths), f"{name}: check", " files"), strict=True)
    alike = len({path.name for path in paths}) < len(paths)
    sources = {str(path) if alike else path.name: sum_ for path, sum_ in zip(paths, checksums, strict=True)}
    take, make = file_bytes, crossbow.as_it_is
    return part_of(Entries(groups), take, make, each, name, encoding="jpeg", statistics=statistics, checksums=sources)


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("crossbow", __doc__)
    arguments.add_parts(made, "files")
    arguments.add_output(made, "data/imagenet")
    arguments.add_shared(made, "statistics", "workers", "overwrite")
    return made


def run(source: Path | None, train: str | None, test: str | None, **options: Any) -> None:
    convert(arguments.given_parts(source, train, test), **options)


main = arguments.command(parser, run, arguments.parts_fault)

if __name__ == "__main__":
    as_command(main)
