"""Writes CIFAR-10 or CIFAR-100 as records: images (3, 32, 32) of unsigned bytes, in RGB.

mpibow convert cifar --source cifar-10-binary.tar.gz --output data/cifar10
mpibow convert cifar --download --set cifar100 --output data/cifar100

The source is the authors' archive (https://www.cs.toronto.edu/~kriz/cifar.html, the binary or the Python version),
which need not be unpacked; or a folder with that archive, or with its unpacked files, also as .gz or .xz. Pickles are
read as data: nothing in them is executed.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mpibow.convert import arguments
from mpibow.convert.cifar import Cifar, CifarBatch, read_cifar, wanted
from mpibow.convert.cifar_files import PAGE, TITLES, VERSIONS
from mpibow.convert.conversion import Part, fetch, write_parts
from mpibow.system.streams import as_command


def convert(
    source: Path,
    output: Path | None = None,
    *,
    set_: str | None = None,
    download: bool = False,
    coarse: bool = False,
    any_count: bool = False,
    workers: int = 1,
    overwrite: bool = False,
) -> None:
    """Writes output/train and output/test from the set in `source`, and verifies them; both or nothing.

    `output` is data/cifar10 or data/cifar100 unless given. With `download` the archive of the binary version is fetched
    first, unless `source` has it.
    """
    if download:
        archive = next(version for version in VERSIONS if version.set == set_)
        fetch(PAGE + archive.archive, source / archive.archive, archive.size, archive.md5, remedy=wanted(set_))
    cifar = read_cifar(source, set_=set_, coarse=coarse, any_count=any_count, workers=workers)
    version = cifar.version
    output = output or Path("data", version.set)
    arguments.prepare(output, overwrite)
    *train, test = cifar.batches.values()
    parts = {"train": _part(train), "test": _part([test])}
    about = _about(cifar, coarse)
    names = cifar.class_names
    write_parts(output, parts, classes=len(names), class_names=names, source=about, overwrite=overwrite)
    print(f"{output}: {about}")


def _part(batches: list[CifarBatch]) -> Part:
    sources = {batch.source: batch.checksum for batch in batches}
    return Part(sum(len(batch.labels) for batch in batches), _samples(batches), sources=sources)


def _samples(batches: list[CifarBatch]) -> Iterator[tuple[np.ndarray, int]]:
    for batch in batches:
        yield from zip(batch.images, batch.labels.tolist(), strict=True)


def _about(cifar: Cifar, coarse: bool) -> str:
    which = "the published files" if cifar.genuine else "not the published files"
    return f"{TITLES[cifar.version.set]} (Krizhevsky, 2009), {which}" + ("; coarse labels" if coarse else "")


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("cifar", __doc__)
    arguments.add_source(made, "the archive, or a folder with the archive or its files", default="data/source/cifar")
    arguments.add_output(made, "data/cifar10", "data/cifar100")
    made.add_argument("--set", dest="set_", choices=TITLES, help="which set, if the source has both, or for --download")
    made.add_argument(
        "--coarse", action="store_true", help="use CIFAR-100's 20 coarse labels instead of its 100 fine ones"
    )
    made.add_argument(
        "--download", action="store_true", help=f"first download the archive of --set from {PAGE}, if --source lacks it"
    )
    made.add_argument(
        "--any-count", action="store_true", help="accept files with fewer or more images than the published ones"
    )
    arguments.add_shared(made, "workers", "overwrite")
    return made


def _fault(options: argparse.Namespace) -> str | None:
    return "--download needs --set cifar10 or --set cifar100" if options.download and not options.set_ else None


main = arguments.command(parser, convert, _fault)

if __name__ == "__main__":
    as_command(main)
