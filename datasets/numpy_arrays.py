"""Writes NumPy arrays as records: images of unsigned bytes or floats, and a label for each.

mpibow convert numpy_arrays --source mnist.npz --output data/mnist
mpibow convert numpy_arrays --train-images x.npy --train-labels y.npy --test-fraction 0.1 --output data/mine

Images are (n, height, width, channels), (n, channels, height, width) or (n, height, width), uint8 or floats; floats are
stored as float32. Labels are integers (n,) or (n, 1). Arrays are read one image at a time, so they may be larger than
memory. --source is an .npz file with the arrays x_train, y_train, x_test and y_test, as from Keras, or a folder of .npy
files of these names. For other names use --train and --test, or --train-images and so on.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpibow.convert import arguments
from mpibow.convert.arrays import StoredArray, keys, stored
from mpibow.convert.conversion import Part, file_checksum, write_parts
from mpibow.convert.labels import numbered, remapped, set_aside
from mpibow.errors import RecordError
from mpibow.system.command import positive
from mpibow.system.streams import as_command

LAYOUTS = ("nhwc", "nchw", "nhw")
AXES = {"nhwc": (2, 0, 1), "nchw": (0, 1, 2)}  # of an image, in the order channel, height, width
CHANNELS = (1, 3, 4)  # numbers of channels to accept where the layout is guessed
KERAS = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}


class Pair(NamedTuple):
    """Images and their labels, as they are stored."""

    images: StoredArray
    labels: StoredArray


def convert(
    pairs: Mapping[str, Pair],
    output: Path,
    *,
    layout: str | None = None,
    test_fraction: float | None = None,
    seed: int = 1,
    remap: bool = False,
    classes: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes output/train and output/test from `pairs`, by these names, and verifies them; both or nothing.

    Without a test pair, `test_fraction` of the training pair is set aside, the same of every class. `remap` numbers
    the labels that occur from 0; else they must count from 0, up to `classes` where that is given.
    """
    arguments.prepare(output, overwrite)
    if "test" not in pairs and test_fraction is None:
        raise RecordError(
            f"{pairs['train'].images}: has no test set; give one, or set some aside by --test-fraction 0.1"
        )
    layouts = {name: _layout(pair.images, layout) for name, pair in pairs.items()}
    if "test" in pairs:
        _check_alike(pairs["train"].images, pairs["test"].images, layouts)
    labels = {str(pair.labels): _labels(pair) for pair in pairs.values()}
    names: tuple[str, ...] = ()
    if remap:
        labels, names = remapped(labels)
    classes = len(names) or numbered(labels, classes=classes)
    chosen = {name: np.arange(len(labels[str(pair.labels)])) for name, pair in pairs.items()}
    about = f"NumPy arrays, layout {layouts['train']}" + ("; labels renumbered" if remap else "")
    if "test" not in pairs:
        assert test_fraction is not None
        values = labels[str(pairs["train"].labels)].astype(np.int64)
        chosen = set_aside(range(len(values)), values, test_fraction, seed, pairs["train"].labels)
        about += f"; {test_fraction} of every class set aside to test, seed {seed}"
    parts = {}
    for name, which in chosen.items():
        pair = pairs.get(name, pairs["train"])
        samples = _samples(pair.images, layouts[name if name in layouts else "train"], labels[str(pair.labels)], which)
        sources = {path.name: file_checksum(path) for path in (pair.images.path, pair.labels.path)}
        parts[name] = Part(len(which), samples, sources=sources)
    write_parts(output, parts, classes=classes, class_names=names, source=about, overwrite=overwrite)


def files(images: Path, labels: Path) -> Pair:
    """Arrays of two .npy files."""
    return Pair(stored(images), stored(labels))


def folder(source: Path) -> dict[str, Pair]:
    """Arrays of the .npy files x_train, y_train, x_test and y_test in a folder."""
    paths = {name: [source / f"{key}.npy" for key in pair] for name, pair in KERAS.items()}
    there = {name: pair for name, pair in paths.items() if any(path.exists() for path in pair)}
    if "train" not in there:
        raise RecordError(f"{source}: has no {KERAS['train'][0]}.npy; say which by --train-images and --train-labels")
    return {name: files(*pair) for name, pair in there.items()}


def archives(train: Path, test: Path | None, named: tuple[str, str] | None) -> dict[str, Pair]:
    """Arrays of .npz files: the ones in `named`, or x_train, y_train, x_test and y_test."""
    pairs = {}
    for name, path in (("train", train), ("test", test or train)):
        there, wanted = keys(path), named or KERAS[name]
        if set(wanted) <= set(there):
            if named is None or test or name == "train":
                pairs[name] = Pair(*(stored(path, key) for key in wanted))
        elif name == "train" or test:
            what = f"has no arrays {' and '.join(wanted)}, it has {', '.join(there) or 'none'}"
            raise RecordError(f"{path}: {what}; say which by --images-key and --labels-key")
    return pairs


def _layout(images: StoredArray, layout: str | None) -> str:
    """The layout that was given, or the only one that the shape allows, which is then printed."""
    shape, kind = images.shape, images.dtype
    if kind != np.uint8 and kind.kind != "f":
        remedy = ".astype(np.uint8) if they lie in 0 to 255, else .astype(np.float32)"
        raise RecordError(f"{images}: has values of {kind}, records have uint8 or floats; save it {remedy}")
    if layout is None:
        likely = [name for name, axis in (("nhwc", -1), ("nchw", 1)) if len(shape) == 4 and shape[axis] in CHANNELS]
        likely += ["nhw"] * (len(shape) == 3)
        if len(likely) != 1:
            what = (
                "pass --layout nhwc or --layout nchw" if len(shape) == 4 else "save it as (n, height, width, channels)"
            )
            raise RecordError(f"{images}: the layout of shape {shape} is not clear; {what}")
        (layout,) = likely
        print(f"{images}: shape {shape} is taken as {layout}; --layout would say otherwise")
    if len(layout) != len(shape):
        raise RecordError(f"{images}: layout {layout} has {len(layout)} dimensions, the shape is {shape}")
    if 0 in shape:
        raise RecordError(f"{images}: has no images, its shape is {shape}")
    return layout


def _check_alike(train: StoredArray, test: StoredArray, layouts: Mapping[str, str]) -> None:
    def form(images: StoredArray, layout: str) -> tuple[object, ...]:
        return "uint8" if images.dtype == np.uint8 else "float", layout, images.shape[1:]

    ours, others = form(train, layouts["train"]), form(test, layouts["test"])
    if ours != others:
        say = "{} images, layout {}, of shape {}".format
        raise RecordError(f"{test}: has {say(*others)}, those to train are {say(*ours)}")


def _labels(pair: Pair) -> np.ndarray:
    labels, count = pair.labels, pair.images.shape[0]
    if labels.dtype.kind not in "iu" or labels.shape not in ((labels.shape[0],), (labels.shape[0], 1)):
        remedy = "take .argmax(axis=1) of one-hot rows" if len(labels.shape) == 2 else "take .astype(np.int64)"
        what = f"is {labels.dtype} of shape {labels.shape}, labels are integers (n,) or (n, 1)"
        raise RecordError(f"{labels}: {what}; {remedy}")
    if labels.shape[0] != count:
        what = f"has {labels.shape[0]:,} labels, {pair.images} has {count:,} images"
        raise RecordError(f"{labels}: {what}; do they belong together?")
    return labels.whole().reshape(-1)


def _samples(
    images: StoredArray, layout: str, labels: np.ndarray, chosen: np.ndarray
) -> Iterator[tuple[np.ndarray, int]]:
    wanted = np.isin(np.arange(len(labels)), chosen).tolist()
    for record, (image, label) in enumerate(zip(images.rows(), labels.tolist(), strict=True)):
        if not wanted[record]:
            continue
        if image.dtype != np.uint8:
            with np.errstate(over="ignore"):
                image = image.astype(np.float32)
            if not np.isfinite(image).all():
                raise RecordError(f"{images}: record {record}: has values that are not finite as float32")
        yield (image[None] if layout == "nhw" else image.transpose(AXES[layout])), label


def parser() -> argparse.ArgumentParser:
    made = arguments.parser("numpy_arrays", __doc__)
    arguments.add_source(made, "see above", needed=False)
    arguments.add_output(made, "data/arrays")
    for part in ("train", "test"):
        made.add_argument(f"--{part}", type=Path, metavar="NPZ", help=f".npz file of {part} images and labels")
    made.add_argument("--images-key", metavar="KEY", help="name of the images in .npz files (default: x_train, x_test)")
    made.add_argument("--labels-key", metavar="KEY", help="name of the labels there (default: y_train, y_test)")
    for part in ("train", "test"):
        for kind in ("images", "labels"):
            made.add_argument(f"--{part}-{kind}", type=Path, metavar="NPY", help=f".npy file of the {part} {kind}")
    made.add_argument("--layout", choices=LAYOUTS, help="order of the images' axes (default: by the shape)")
    made.add_argument("--remap", action="store_true", help="renumber the labels that occur from 0, in ascending order")
    made.add_argument("--classes", type=positive, metavar="N", help="number of classes, if some have no image")
    arguments.add_shared(made, "test-fraction", "seed", "overwrite")
    return made


def run(
    source: Path | None,
    train: Path | None,
    test: Path | None,
    images_key: str | None,
    labels_key: str | None,
    train_images: Path | None,
    train_labels: Path | None,
    test_images: Path | None,
    test_labels: Path | None,
    **options: Any,
) -> None:
    if source and source.is_dir():
        pairs = folder(source)
    elif archive := source or train:
        pairs = archives(archive, test, (images_key, labels_key) if images_key and labels_key else None)
    else:
        paths = {"train": (train_images, train_labels), "test": (test_images, test_labels)}
        pairs = {part: files(images, labels) for part, (images, labels) in paths.items() if images and labels}
    arguments.refuse_split(options["test_fraction"], pairs["test"].images if "test" in pairs else None)
    convert(pairs, **options)


def _fault(options: argparse.Namespace) -> str | None:
    """The error in the command line, if any."""
    single = [options.train_images, options.train_labels, options.test_images, options.test_labels]
    if bool(options.source) + bool(options.train) + any(single) != 1:
        return "give one of --source, --train, and --train-images with --train-labels"
    if options.test and not options.train:
        return "--test goes with --train"
    if any(single) and (not all(single[:2]) or bool(single[2]) != bool(single[3])):
        return "images and labels go together: --train-images and --train-labels, --test-images and --test-labels"
    if bool(options.images_key) != bool(options.labels_key):
        return "--images-key and --labels-key go together"
    if options.remap and options.classes is not None:
        return "--remap finds the classes itself, so leave out --classes"
    return None


main = arguments.command(parser, run, _fault)

if __name__ == "__main__":
    as_command(main)
