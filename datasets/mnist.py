"""Writes MNIST, or any set in the same file format (Fashion-MNIST, KMNIST, EMNIST), as records.

mpibow convert mnist --source DIR [--download] --output data/mnist
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mpibow.convert import arguments, idx
from mpibow.convert.conversion import Part, fetch, file_checksum, write_parts
from mpibow.errors import RecordError
from mpibow.system.streams import as_command

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = {  # file: bytes, MD5
    "train-images-idx3-ubyte.gz": (9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte.gz": (28881, "d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte.gz": (1648877, "9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte.gz": (4542, "ec29112dd5afa0611ce80d1b7f02629c"),
}
PARTS = {"train": ("train",), "test": ("t10k", "test")}  # EMNIST calls it test


def convert(
    source: Path,
    output: Path,
    *,
    download: bool = False,
    prefix: str = "",
    first_label: int = 0,
    overwrite: bool = False,
) -> None:
    """Writes output/train and output/test from the four IDX files in `source`, and verifies them; both or nothing.

    With `download` MNIST's files that `source` lacks are fetched first.
    """
    for name, (size, checksum) in MNIST.items() if download else ():
        fetch(MIRROR + name, source / name, size, checksum, remedy=_wanted(source))
    arguments.prepare(output, overwrite)
    files = {
        part: (_find(source, prefix, part, "images", 3), _find(source, prefix, part, "labels", 1)) for part in PARTS
    }
    labels = {part: _labels(*files[part], first_label) for part in PARTS}
    least = min(int(values.min()) for values in labels.values())
    if least > 0:
        lowest = least + first_label
        raise RecordError(
            f"{source}: no label is {first_label}, the lowest is {lowest}, so that class 0 would be empty; "
            f"pass --first-label {lowest}"
        )
    classes = 1 + max(int(values.max()) for values in labels.values())
    sources = {part: {file.name: file_checksum(file) for file in pair} for part, pair in files.items()}
    parts = {
        part: Part(len(labels[part]), _samples(images, labels[part]), sources=sources[part])
        for part, (images, _) in files.items()
    }
    about = _about({name: sum_ for part in sources.values() for name, sum_ in part.items()}, prefix, first_label)
    write_parts(output, parts, classes=classes, source=about, overwrite=overwrite)


def _samples(images: Path, labels: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    for image, label in zip(idx.images(images), labels.tolist(), strict=True):
        yield image[None], label  # (1, h, w)


def _find(source: Path, prefix: str, part: str, kind: str, dimensions: int) -> Path:
    names = [
        f"{prefix}{start}-{kind}{mark}idx{dimensions}-ubyte{end}"
        for start in PARTS[part]
        for mark in "-."
        for end in (".gz", "")
    ]
    for name in names:
        if (source / name).is_file():
            return source / name
    remedy = (
        f"pass another --source, or --prefix {prefix!r} is wrong" if prefix else f"--download, or {_wanted(source)}"
    )
    raise RecordError(f"{source}: has no {names[0]}, nor one without .gz or with .idx; {remedy}")


def _labels(images: Path, file: Path, first_label: int) -> np.ndarray:
    """Labels that count from 0."""
    labels = idx.labels(file).astype(np.int64)
    if (count := idx.count(images, 3)) != len(labels):
        raise RecordError(
            f"{images}: has {count} images, {file.name} has {len(labels)} labels; do they belong together?"
        )
    if len(labels) == 0:
        raise RecordError(f"{images}: has no images")
    if labels.min() < first_label:
        raise RecordError(f"{file}: has a label {labels.min()}, --first-label is {first_label}")
    return labels - first_label


def _about(checksums: dict[str, str], prefix: str, first_label: int) -> str:
    genuine = all(f"md5 {MNIST.get(name, (0, ''))[1]}" == checksum for name, checksum in checksums.items())
    title = "MNIST (LeCun, Cortes and Burges), the original files" if genuine else f"IDX files {prefix}".rstrip()
    return title + (f"; labels are those of the files less {first_label}" if first_label else "")


def _wanted(source: Path) -> str:
    files = "".join(f"\n  {name}  {size:,} bytes  MD5 {checksum}" for name, (size, checksum) in MNIST.items())
    return f"place these files in {source}:{files}"


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("mnist", __doc__)
    arguments.add_source(made, "folder of the four IDX files, .gz or not", default="data/source/mnist")
    arguments.add_output(made, "data/mnist")
    made.add_argument(
        "--download", action="store_true", help="first download MNIST's files that --source lacks, from " + MIRROR
    )
    made.add_argument("--prefix", default="", help="prefix of the file names, such as emnist-letters-")
    made.add_argument(
        "--first-label",
        type=int,
        default=0,
        metavar="N",
        help="the files' lowest label, which becomes 0 (EMNIST letters: 1)",
    )
    arguments.add_shared(made, "overwrite")
    return made


def _fault(options: argparse.Namespace) -> str | None:
    gets = options.download and options.prefix
    return "--download gets MNIST only; get the files of --prefix yourself" if gets else None


main = arguments.command(parser, convert, _fault)

if __name__ == "__main__":
    as_command(main)
