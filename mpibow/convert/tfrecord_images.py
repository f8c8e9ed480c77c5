"""Images and labels in TFRecord files of tf.Examples: surveyed without the images, then read one by one."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from google_crc32c import value as crc32c

from mpibow.convert import tf_example, tfrecord
from mpibow.data import Array
from mpibow.data.records import DTYPES
from mpibow.errors import RecordError

from .conversion import Each, watched
from .entries import Entries, Entry, ImageGroup, group_of
from .recode import Recoded, kind_of
from .tf_example import Feature
from .tfrecord import FilePiece

SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(?:\.\w+)?")


@dataclass(frozen=True)
class FeatureNames:
    """Names of the features, and the lowest label, which becomes 0; `raw`: the image's bytes are pixels."""

    image: str = "image/encoded"
    label: str = "image/class/label"
    name: str | None = None  # of the class
    first_label: int = 0
    raw: bool = False


class Survey(NamedTuple):
    """A piece's images; the record that is the first of each kind of image; names of classes by label."""

    group: ImageGroup
    kinds: dict[str, str]
    names: dict[int, str]


def image_of(wanted: FeatureNames, entry: Entry) -> tuple[Any, int]:
    """The image of an entry's record, bytes or an array as its kind is, and the record's CRC32C, which is compared."""
    data = tfrecord.read(entry.file, int(entry.name.rpartition(" ")[2]), entry.start, entry.size)
    feature = _named(tf_example.parse(data, {wanted.image}), wanted.image, data)
    image = feature.values if isinstance(feature.values, np.ndarray) else bytes(feature.values[0])
    return image, crc32c(data)


@dataclass(frozen=True)
class Pixels:
    """Arrays (c, h, w) of raw images; `last`: the channels come last in the source."""

    shape: tuple[int, int, int]
    dtype: str = "uint8"
    last: bool = False

    def __call__(self, values: bytes | Array) -> Recoded[Array]:
        dtype = DTYPES[self.dtype]
        count = math.prod(self.shape)
        if isinstance(values, bytes):
            if len(values) != count * dtype.itemsize:
                raise RecordError(
                    f"image has {len(values)} bytes, must have {count * dtype.itemsize} for {self.dtype} {self.shape}"
                )
            array = np.frombuffer(values, dtype)
        elif len(values) != count:
            raise RecordError(f"image has {len(values)} values, must have {count} for {self.shape}")
        elif values.dtype != np.int64:
            array = values.astype(DTYPES["float32"])
        elif values.min() < 0 or values.max() > 255:
            raise RecordError(f"integers of an image must lie in [0, 255], got {values.min()} to {values.max()}")
        else:
            array = values.astype(np.uint8)
        c, h, w = self.shape
        return Recoded(array.reshape(h, w, c).transpose(2, 0, 1) if self.last else array.reshape(c, h, w))


def survey(wanted: FeatureNames, piece: FilePiece) -> Survey:
    """The places of the piece's images, and their labels. Raises RecordError, naming the record, where one has none."""
    places = []  # start, size, label
    kinds = dict[str, str]()
    names = dict[int, str]()
    for number, (start, data) in enumerate(tfrecord.records(piece), piece.first):
        where = f"{piece.path}: record {number}"
        try:
            kind, label, name = _look(wanted, data)
            if name and names.setdefault(label, name) != name:
                raise RecordError(f"label {label + wanted.first_label} is {name!r}, before it was {names[label]!r}")
        except RecordError as error:
            tfrecord.read(piece.path, number, start, len(data))  # raises a better error where a checksum is wrong
            raise RecordError(f"{where}: {error}") from error
        kinds.setdefault(kind, where)
        places.append((start, len(data), label))
    numbers = range(piece.first, piece.first + len(places))
    return Survey(group_of(piece.path, numbers, places), kinds, names)


def look_through(
    files: Sequence[Path], wanted: FeatureNames, each: Each, index: Path | None, title: str, before: Mapping[int, str]
) -> tuple[Entries, dict[str, str], dict[int, str]]:
    """The images of all files, their kinds, and the names of classes, those of `before` among them.

    The files' indices are in the folder `index`. Raises RecordError for no images, and for a class of two names.
    """
    there = pieces(files, index)
    groups = []
    kinds = dict[str, str]()
    names = dict(before)
    for group, found, called in watched(each(partial(survey, wanted), there), len(there), title, " files"):
        groups.append(group)
        kinds = found | kinds
        for label, name in called.items():
            if names.setdefault(label, name) != name:
                raise RecordError(f"{group.file}: class {label} is {name!r}, in files before it {names[label]!r}")
    if not sum(len(group.names) for group in groups):
        raise RecordError(f"{files[0]}: has no records")
    return Entries(groups), kinds, names


def pieces(files: Iterable[Path], index: Path | None) -> list[FilePiece]:
    """All pieces of the files, whose indices are in the folder `index`, NAME.idx or NAME."""
    found = []
    for file in files:
        places = [index / f"{file.name}.idx", index / file.name] if index else []
        place = next((place for place in places if place.is_file() and not place.samefile(file)), None)
        if index and place is None:
            raise RecordError(f"{index}: has no {file.name}.idx, nor {file.name}; make it by DALI's tfrecord2idx")
        found += tfrecord.pieces(file, place)
    return found


def refuse_missing(files: Sequence[Path]) -> None:
    """Raises RecordError where files of a set named NAME-00000-of-00010 are missing."""
    there = {(match[1], int(match[2]), int(match[3])) for file in files if (match := SHARD.fullmatch(file.name))}
    gone = [
        f"{name}-{number:05d}-of-{count:05d}"
        for name, count in sorted({(name, count) for name, _, count in there})
        for number in range(count)
        if (name, number, count) not in there
    ]
    if gone:
        raise RecordError(
            f"{files[0].parent}: {len(gone):,} files of the set are missing: {', '.join(gone[:5])}; "
            "get them, or convert without them: --partial"
        )


def first(path: Path) -> dict[str, Feature]:
    """The features of a file's first example, all of them, checked."""
    for start, data in tfrecord.records(tfrecord.pieces(path)[0]):
        whole = tfrecord.read(path, 0, start, len(data))
        try:
            return tf_example.parse(whole)
        except RecordError as error:
            raise RecordError(f"{path}: record 0: {error}") from error
    raise RecordError(f"{path}: has no records")


def _look(wanted: FeatureNames, data: memoryview) -> tuple[str, int, str]:
    """Kind of the image, label from 0 on, name of the class."""
    features = tf_example.parse(data, {wanted.image, wanted.label, wanted.name or wanted.label})
    image, label = (_named(features, name, data) for name in (wanted.image, wanted.label))
    if label.kind != "int64" or len(label.values) != 1:
        raise RecordError(f"{wanted.label} is {label}, a label is 1 int64{_choice('--label-feature', data)}")
    value = int(label.values[0]) - wanted.first_label
    if not 0 <= value < 2**31:
        raise RecordError(
            f"{wanted.label} is {value + wanted.first_label}, the lowest (--first-label) is {wanted.first_label}"
        )
    name = features.get(wanted.name or "")
    text = (
        bytes(name.values[0]).decode("utf-8", "replace") if name and name.kind == "bytes" and len(name.values) else ""
    )
    return _kind(wanted, image), value, text


def _kind(wanted: FeatureNames, image: Feature) -> str:
    if not image.kind or (image.kind == "bytes" and len(image.values) != 1):
        raise RecordError(f"{wanted.image} is {image}, an image is 1 bytes, or a list of numbers")
    if image.kind != "bytes" or wanted.raw:
        return image.kind
    data = bytes(image.values[0])
    if (kind := kind_of(data)) is None:
        raise RecordError(
            f"{wanted.image} is neither JPEG nor PNG, it starts with {data[:8].hex(' ') or 'nothing'}; "
            "if its bytes are pixels pass --shape C,H,W"
        )
    return kind


def _named(features: dict[str, Feature], name: str, data: bytes | memoryview) -> Feature:
    if name not in features:
        raise RecordError(f"has no feature {name}{_choice('--image-feature and --label-feature', data)}")
    return features[name]


def _choice(option: str, data: bytes | memoryview) -> str:
    there = ", ".join(f"{name} ({feature})" for name, feature in sorted(tf_example.parse(data).items()))
    return f"; it has {there or 'none'}; choose by {option}"
