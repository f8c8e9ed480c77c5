"""Writes the ImageNet files of Crossbow's release of 2019 as records: the same JPEGs, in 1,000 classes.

python datasets/crossbow.py --train old/train --test 'old/validation/*.records' --output data/imagenet

Every length in the files is checked. Mean and standard deviation are those of some of the images, spread evenly over
all, because all would have to be decoded. The files hold no names of classes, so the records have none either.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from mpibow.data import crossbow
from mpibow.data.conversion import Part, cores, exit_code, progress, spreader, write_parts
from mpibow.data.encoded import evenly, moments_of
from mpibow.errors import RecordError

STATISTICS = 10_000


def convert(
    train: str, test: str, output: Path, *, statistics: int = STATISTICS, workers: int = 1, overwrite: bool = False
) -> None:
    """Writes output/train and output/test from the files at `train` and `test`, and verifies them; both or nothing.

    Each of the two is a folder, a file, or a pattern; `statistics` is how many images of each are decoded.
    """
    paths = {"train": crossbow.find(train), "test": crossbow.find(test)}
    for path in sorted({path.resolve() for path in paths["train"]} & {path.resolve() for path in paths["test"]}):
        raise RecordError(f"{path}: is both to train and to test; give other files to --train or --test")
    parts = {name: _part(name, files, statistics, workers) for name, files in paths.items()}
    about = "ImageNet (Russakovsky et al., 2015), from the record files of Crossbow's release of 2019"
    counts = " and ".join(f"{min(statistics, part.count):,}" for part in parts.values())
    about += f"; mean and std are those of {counts} of the images"
    write_parts(output, parts, classes=crossbow.CLASSES, source=about, overwrite=overwrite)


def _part(name: str, paths: list[Path], statistics: int, workers: int) -> Part:
    with spreader(min(workers, len(paths))) as each, progress(len(paths), f"{name}: check", " files") as bar:
        files = []
        for indexed in each(crossbow.index, paths):
            files.append(indexed)
            bar.update()
    count = sum(len(indexed.labels) for indexed in files)
    numbers = evenly(count, statistics)
    moments = moments_of(
        crossbow.chosen(files, numbers),
        workers,
        total=len(numbers),
        name=lambda number: crossbow.name(files, numbers[number]),
    )
    alike = len({path.name for path in paths}) < len(paths)
    sources = {str(indexed.path) if alike else indexed.path.name: indexed.checksum for indexed in files}
    return Part(count, crossbow.images(files), encoding="jpeg", moments=moments, sources=sources)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for part in ("train", "test"):
        parser.add_argument(
            f"--{part}",
            required=True,
            metavar="FILES",
            help=f"files of images to {part}: a folder, or a pattern in quotes; taken by the numbers in their names",
        )
    parser.add_argument(
        "--output", type=Path, default=Path("data/imagenet"), help="gets train and test (default: %(default)s)"
    )
    parser.add_argument(
        "--statistics",
        type=int,
        default=STATISTICS,
        metavar="N",
        help="images to train, and to test, that mean and std are taken of (default: %(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=cores(),
        metavar="N",
        help="processes that check files and decode images (default: the %(default)s cores)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the data set that is there")
    options = parser.parse_args(argv)
    for name in ("statistics", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    return exit_code(partial(convert, **vars(options)))


if __name__ == "__main__":
    sys.exit(main())
