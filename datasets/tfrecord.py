"""Writes TFRecord files of tf.Examples as records: JPEG, PNG, or pixels as bytes, floats or integers.

mpibow convert tfrecord --source data/source/mine --list
mpibow convert tfrecord --source data/source/mine --output data/mine \\
    --image-feature image/encoded --label-feature image/class/label --first-label 1
mpibow convert tfrecord --source data/source/mnist.tfrecord --test-fraction 0.1 --output data/mine \\
    --image-feature image_floats --shape 1,28,28 --label-feature image_class
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mpibow.convert import arguments
from mpibow.convert.conversion import file_checksum, spreader, write_parts
from mpibow.convert.entries import Entries, part_of, split
from mpibow.convert.recode import ToEncoded
from mpibow.convert.tfrecord_images import FeatureNames, Pixels, first, image_of, look_through, refuse_missing
from mpibow.errors import RecordError
from mpibow.system.command import positive
from mpibow.system.streams import as_command

FEW = 8  # files that get a checksum each, if they are not large
LARGE = 4 << 30


def convert(
    files: Mapping[str, Sequence[Path]],
    output: Path,
    wanted: FeatureNames = FeatureNames(),  # noqa: B008
    *,
    pixels: Pixels | None = None,
    encode: str | None = None,
    decode: bool = False,
    index: Path | None = None,
    test_fraction: float | None = None,
    seed: int = 1,
    classes: int | None = None,
    partial_sets: bool = False,
    statistics: int = arguments.STATISTICS,
    workers: int = 1,
    overwrite: bool = False,
) -> None:
    """Writes output/train, and output/test if there is one, from TFRecord files, and verifies them; all or nothing.

    `pixels` describes raw images; encoded ones become `encode` (jpeg or png) where they are of both kinds.
    """
    arguments.prepare(output, overwrite)
    if not partial_sets:
        refuse_missing([path for paths in files.values() for path in paths])
    with spreader(workers) as each:
        parts, kinds, names = dict[str, Entries](), dict[str, str](), dict[int, str]()
        for name, paths in files.items():
            parts[name], found, names = look_through(paths, wanted, each, index, f"{name}: look through", names)
            kinds = found | kinds
        make, encoding = _maker(kinds, pixels, encode, decode)
        highest = max(int(entries.labels().max()) for entries in parts.values())
        _check_labels(parts, highest, classes, wanted)
        if test_fraction is not None:
            parts = split(parts["train"], test_fraction, seed, files["train"][0])
        count = classes or highest + 1
        made = {
            name: part_of(
                entries,
                partial(image_of, wanted),
                make,
                each,
                f"{name}: {files.get(name, files['train'])[0].name} ...",
                encoding=encoding,
                statistics=statistics,
                checksums=_checksums(files.get(name, files["train"])),
            )
            for name, entries in parts.items()
        }
        about = f"TFRecord files, images {wanted.image}, labels {wanted.label}"
        about += f" less {wanted.first_label}" if wanted.first_label else ""
        about += f"; test: {test_fraction} of every class, seed {seed}" if test_fraction else ""
        write_parts(
            output,
            made,
            classes=count,
            class_names=[names.get(label, f"unknown-{label}") for label in range(count)] if names else [],
            source=about,
            overwrite=overwrite,
        )


def listing(path: Path) -> str:
    """Features of the first example, kinds and sizes."""
    features = sorted(first(path).items())
    wide = max((len(name) for name, _ in features), default=0)
    return "\n".join([f"{path}: first record", *(f"  {name:{wide}}  {feature}" for name, feature in features)])


def _maker(
    kinds: Mapping[str, str], pixels: Pixels | None, encode: str | None, decode: bool
) -> tuple[ToEncoded | Pixels, str]:
    if encode and (unfit := [where for kind, where in kinds.items() if kind not in ("jpeg", "png")]):
        raise RecordError(f"{unfit[0]}: --encode is for JPEG and PNG images, this one is pixels; leave it out")
    if encode:
        return ToEncoded(encode, decode), encode
    if len(kinds) > 1:
        (one, there), (other, here) = list(kinds.items())[:2]
        raise RecordError(f"{here}: has a {other} image, {there} has a {one} one; make them one kind by --encode jpeg")
    ((kind, where),) = kinds.items()
    if kind in ("jpeg", "png"):
        return ToEncoded(kind, decode), kind
    if pixels is None:
        raise RecordError(f"{where}: the image is a list of {kind}; pass its shape, --shape C,H,W")
    return pixels, "raw"


def _check_labels(parts: Mapping[str, Entries], highest: int, classes: int | None, wanted: FeatureNames) -> None:
    least = min(int(entries.labels().min()) for entries in parts.values())
    if least > 0 and classes is None:
        lowest = least + wanted.first_label
        raise RecordError(
            f"no label is {wanted.first_label}, the lowest is {lowest}, so that class 0 would be empty; "
            f"pass --first-label {lowest}, or --classes"
        )
    if classes is not None and highest >= classes:
        raise RecordError(
            f"labels less --first-label {wanted.first_label} lie in [0, {classes}) (--classes), got {highest}"
        )


def _checksums(files: Sequence[Path]) -> dict[str, str]:
    """MD5 of a few files; many files, or large ones, are not read again for it."""
    if len(files) > FEW or sum(path.stat().st_size for path in files) > LARGE:
        return {}
    return {path.name: file_checksum(path) for path in files}


def _pixels(shape: tuple[int, int, int] | None, dtype: str, layout: str, feature: str, train: Path) -> Pixels | None:
    """Pixels by the options or, without --shape, by the features image/shape and image/dtype of an export."""
    if shape is None:
        features = first(train)
        if feature not in features or "image/shape" not in features or "image/dtype" not in features:
            return None
        sizes, name = features["image/shape"].values, features["image/dtype"].values
        if len(sizes) != 3 or len(name) != 1:
            return None
        channels, height, width = map(int, sizes)
        shape, dtype = (channels, height, width), bytes(name[0]).decode("ascii", "replace")
        if min(shape) < 1 or dtype not in ("uint8", "float32"):
            raise RecordError(f"{train}: record 0: image/shape is {shape} of {dtype!r}; pass --shape and --dtype")
    return Pixels(shape, dtype, layout == "hwc")


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("tfrecord", __doc__)
    arguments.add_parts(made, "TFRecord files")
    arguments.add_output(made, "data/tfrecord")
    made.add_argument("--list", action="store_true", help="print the features of the first example, and write nothing")
    names = FeatureNames()
    made.add_argument(
        "--image-feature", default=names.image, metavar="NAME", help="feature of the image (default: %(default)s)"
    )
    made.add_argument(
        "--label-feature",
        default=names.label,
        metavar="NAME",
        help="feature of the label, one int64 (default: %(default)s)",
    )
    made.add_argument("--name-feature", metavar="NAME", help="feature of the class name, such as image/class/text")
    made.add_argument(
        "--first-label", type=int, default=0, metavar="N", help="the lowest label; it becomes 0 (default: 0)"
    )
    made.add_argument(
        "--classes",
        type=positive,
        metavar="N",
        help="number of classes (default: the highest label, and one)",
    )
    made.add_argument(
        "--shape",
        type=arguments.shape,
        metavar="C,H,W",
        help="shape of images that are stored as pixels: bytes, floats, integers",
    )
    made.add_argument(
        "--layout", choices=["chw", "hwc"], default="chw", help="order of pixels; hwc: channels last (default: chw)"
    )
    made.add_argument(
        "--dtype",
        choices=["uint8", "float32"],
        default="uint8",
        help="type of pixels that are stored as bytes (default: uint8)",
    )
    made.add_argument("--encode", choices=["jpeg", "png"], help="encode JPEG and PNG images as one kind")
    made.add_argument("--decode", action="store_true", help="decode every image to find damaged ones; takes longer")
    made.add_argument(
        "--index", type=Path, metavar="DIR", help="folder of DALI's indices, NAME.idx: many workers read one file"
    )
    made.add_argument(
        "--partial", dest="partial_sets", action="store_true", help="convert even if files of a set are missing"
    )
    arguments.add_shared(made, "test-fraction", "seed", "statistics", "workers", "overwrite")
    return made


def run(
    source: Path | None,
    train: str | None,
    test: str | None,
    list: bool,
    image_feature: str,
    label_feature: str,
    name_feature: str | None,
    first_label: int,
    shape: tuple[int, int, int] | None,
    layout: str,
    dtype: str,
    **options: Any,
) -> None:
    files = arguments.given_parts(source, train, test)
    if list:
        print(listing(files["train"][0]))
        return
    arguments.refuse_split(options["test_fraction"], files["test"][0] if "test" in files else None)
    pixels = _pixels(shape, dtype, layout, image_feature, files["train"][0])
    wanted = FeatureNames(image_feature, label_feature, name_feature, first_label, raw=pixels is not None)
    convert(files, wanted=wanted, pixels=pixels, **options)


main = arguments.command(parser, run, arguments.parts_fault)

if __name__ == "__main__":
    as_command(main)
