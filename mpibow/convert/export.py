"""Data sets of records written in forms that others read: TFRecord files of tf.Examples, and folders of images."""

import argparse
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path

import numpy as np

from mpibow.convert import tf_example
from mpibow.data import SHARD_SIZE, Array, RecordSet, open_records
from mpibow.data.aside import folder_aside, refused
from mpibow.data.ratings import FORM
from mpibow.errors import RecordError

from .conversion import progress
from .recode import png
from .tfrecord import write_tfrecord

CLASSES = "classes.txt"
SUFFIXES = {"jpeg": ".JPEG", "png": ".png"}
LONGEST = 100  # characters of a class's name that a folder's name takes


def to_tfrecord(data: RecordSet, output: Path, *, first_label: int = 0) -> None:
    """Writes output/NAME-00000-of-00004.tfrecord and so on, in the order of the samples; all of it or nothing.

    Features: image/encoded, its image/format (jpeg, png, raw), image/class/label (the first class's is `first_label`),
    image/class/text where classes have names; raw images also have image/shape (channels, height, width), image/dtype.
    """
    form = data.manifest.form
    names = data.manifest.class_names
    size = sum(shard.size for shard in data.manifest.shards)
    files = max(1, min(data.count, -(-size // SHARD_SIZE)))
    common: dict[str, bytes | Array] = {"image/format": form.encoding.encode()}
    if form.encoding == "raw":
        common |= {"image/shape": np.array(form.shape), "image/dtype": form.dtype.encode()}
    with _aside(output) as folder, progress(data.count, str(output), " images") as bar:
        for number in range(files):
            name = f"{data.name}-{number:05d}-of-{files:05d}.tfrecord"
            with write_tfrecord(folder / name, output / name) as add:
                for sample in range(number * data.count // files, (number + 1) * data.count // files):
                    image, label = data.record(sample)
                    features = common | {"image/encoded": image, "image/class/label": np.array([label + first_label])}
                    if names:
                        features["image/class/text"] = names[label].encode()
                    add(tf_example.encode(features))
                    bar.update()


def to_folder(data: RecordSet, output: Path) -> None:
    """Writes output/CLASS/00012.JPEG and so on, named by the samples' numbers; all of it or nothing.

    Encoded images are written as they are, raw ones of uint8 and 1 or 3 channels as PNG, others as .npy. The folders'
    names sort as the classes are numbered; `classes.txt` lists folder, tab, class.
    """
    write, suffix = _writer(data)
    width = len(str(data.count - 1))
    folders = class_folders(data.manifest.class_names, data.classes)
    with _aside(output) as folder, progress(data.count, str(output), " images") as bar, refused(output):
        for name in folders:
            (folder / name).mkdir()
        called = data.manifest.class_names or folders
        lines = [f"{name}\t{' '.join(text.split()) or name}\n" for name, text in zip(folders, called, strict=True)]
        (folder / CLASSES).write_text("".join(lines), "utf-8")
        for sample in range(data.count):
            image, label = data.record(sample)
            (folder / folders[label] / f"{sample:0{width}d}{suffix}").write_bytes(write(image))
            bar.update()
        os.sync()  # once: a file at a time would take hours for ImageNet


def class_folders(names: tuple[str, ...], classes: int) -> list[str]:
    """A folder's name for every class: its own if all can be files' names and sort as classes do, else a number too."""
    width = len(str(classes - 1))
    if not names:
        return [f"{number:0{width}d}" for number in range(classes)]
    plain = all(re.fullmatch(r"[^\s./\0]([^/\0\t\n\r]*[^\s/\0])?", name) and len(name) <= LONGEST for name in names)
    if plain and list(names) == sorted(names) and len({name.casefold() for name in names}) == classes:
        return list(names)
    safe = [re.sub(r"[^\w.-]+", "_", name)[:LONGEST] for name in names]
    return [f"{number:0{width}d}_{name}" for number, name in enumerate(safe)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `python -m mpibow.records export`."""
    parser.add_argument("path", type=Path, metavar="DIR", help="a data set, such as data/mnist/train")
    parser.add_argument(
        "--to",
        choices=["tfrecord", "folder"],
        required=True,
        help="TFRecord files of tf.Examples, or folders of image files",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="PATH", help="new folder to write to")
    parser.add_argument(
        "--first-label", type=int, default=0, metavar="N", help="for tfrecord: label of the first class (default: 0)"
    )


def run(options: argparse.Namespace) -> None:
    """Exports as the options set, and prints a summary."""
    data = open_records(options.path)
    kind = data.manifest.kind or ("ratings" if data.manifest.form == FORM and data.classes == 1 else "")
    if kind:
        raise RecordError(f"{options.path}: holds {kind}; images with a class each can be exported")
    if options.to == "tfrecord":
        to_tfrecord(data, options.output, first_label=options.first_label)
    else:
        to_folder(data, options.output)
    print(f"{options.output}: {data.count:,} records of {data.classes:,} classes")


def _writer(data: RecordSet) -> tuple[Callable[[bytes], bytes], str]:
    """A function from a record's bytes to a file's, and the file's suffix."""
    form = data.manifest.form
    if form.encoding != "raw":
        return bytes, SUFFIXES[form.encoding]
    if form.dtype == "uint8" and form.shape[0] in (1, 3):
        return lambda image: png(np.frombuffer(image, np.uint8).reshape(form.shape)), ".png"
    return lambda image: _npy(np.frombuffer(image, data.dtype).reshape(form.shape)), ".npy"


def _npy(array: Array) -> bytes:
    file = BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _aside(output: Path) -> AbstractContextManager[Path]:
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise RecordError(f"{output}: exists already; choose another name")
    return folder_aside(output)
