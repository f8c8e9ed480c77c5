"""The user's own data set: anything with a length and items, whose items become arrays by name."""

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from PIL.Image import Image as Photo
from PIL.ImageFile import ImageFile

from mpibow.errors import MpibowError, RecordError

from .dataset import COUNTER, Array, ArraysByName, Inputs, channels_last, numeric_array, stored
from .image_header import turned
from .photo import orientation, rgb

Transform = Callable[[Any, np.random.Generator], object]
IMAGE, LABEL = "image", "label"  # of a classifier
LABELS = (LABEL, "labels")
PAIR = "(input, target) or values by name"


@runtime_checkable
class Indexed(Protocol):
    """A map-style data set in PyTorch's sense: one of Hugging Face's, or a list of tuples."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> object: ...


@dataclass(frozen=True)
class Items:
    """Samples of `source` as arrays by name: `parameters` are the names of inputs in a tuple, `target` the last one's.

    `rows` (n,) are those of a part. In training `transform(sample, rng)` comes before the conversion, in evaluation
    `evaluated`; rng is a function of (seed, epoch, sample). Items can be pickled where source and transforms can.
    """

    name: str
    source: Indexed
    parameters: tuple[str, ...]
    target: str
    seed: int = 0
    transform: Transform | None = None
    evaluated: Transform | None = None
    rows: Array | None = None

    @property
    def count(self) -> int:
        return len(self.source) if self.rows is None else len(self.rows)

    def part(self, rows: Array) -> "Items":
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def number(self, sample: int) -> int:
        """The sample's number in the whole data set."""
        return sample if self.rows is None else int(self.rows[sample])

    def item(self, sample: int, epoch: int | None) -> object:
        """The source's item for a sample, transformed to train in `epoch`, or to evaluate. Raises RecordError."""
        number = self.number(sample)
        change = self.evaluated if epoch is None else self.transform
        with self._naming(sample):
            item = self.source[number]
            return item if change is None else change(item, generator(self.seed, epoch or 0, number))

    def sample(self, sample: int, epoch: int | None) -> dict[str, Array]:
        """The arrays of one sample. Raises RecordError that names the sample."""
        item = self.item(sample, epoch)
        with self._naming(sample):
            values = named(item, self.parameters, self.target)
            return {name: array_of(name, each, label=name == self.target == LABEL) for name, each in values.items()}

    def fill(self, samples: Array, epochs: Array | None, inputs: Inputs, arrays: Sequence[Array]) -> None:
        """Copies samples (n,) into arrays (n, ...), one for each of `inputs`, which the samples must be like."""
        for row, sample in enumerate(samples.tolist()):
            found = self.sample(sample, None if epochs is None else int(epochs[row]))
            if unlike := fault(found, inputs):
                remedy = ""
                if epochs is None and self.transform is not None and self.evaluated is None:
                    remedy = "; transform is for training data alone: give {'train': ..., 'test': ...}"
                raise RecordError(f"{self.name}: sample {self.number(sample)}: {unlike}{remedy}")
            for name, array in zip(inputs, arrays, strict=True):
                array[row] = found[name]

    @contextmanager
    def _naming(self, sample: int) -> Iterator[None]:
        """Turns any error raised inside into a RecordError that names the sample."""
        try:
            yield
        except Exception as error:
            kind = "" if isinstance(error, MpibowError) else f"{type(error).__name__}: "
            raise RecordError(f"{self.name}: sample {self.number(sample)}: {kind}{error}") from error


def inputs_like(found: ArraysByName) -> Inputs:
    """Shapes and dtypes of a sample."""
    return {name: (array.shape, array.dtype) for name, array in found.items()}


def fault(found: ArraysByName, inputs: Inputs) -> str:
    """Why a sample is unlike the first one, '' where it is like it."""
    if set(found) != set(inputs):
        return f"has {', '.join(found)}, the first sample has {', '.join(inputs)}"
    for name, (shape, dtype) in inputs.items():
        if (found[name].shape, found[name].dtype) != (shape, dtype):
            got = f"{found[name].shape} {found[name].dtype}"
            return f"{name} is {got}, the first sample's is {shape} {dtype}; a batch needs samples of one shape"
    return ""


def named(sample: object, parameters: Sequence[str], target: str) -> dict[str, object]:
    """A sample's values by name: (input, target), (input, input, target), or a mapping; each part may be a mapping too.

    Inputs without names take those of `parameters`, in order. Raises RecordError for anything else.
    """
    if isinstance(sample, Mapping):
        return _renamed(dict(sample), parameters, target)
    if not isinstance(sample, tuple | list) or len(sample) < 2:
        raise RecordError(f"must be {PAIR}, got {_told(sample)}")
    *inputs, last = sample
    if len(inputs) == 1 and isinstance(inputs[0], tuple):
        inputs = list(inputs[0])
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        given = dict(inputs[0])
    elif len(inputs) <= len(parameters):
        given = dict(zip(parameters, inputs, strict=False))
    else:
        raise RecordError(f"has {len(inputs)} inputs and a target, the net takes {', '.join(parameters)}")
    return given | (dict(last) if isinstance(last, Mapping) else {target: last})


def _renamed(sample: dict[str, object], parameters: Sequence[str], target: str) -> dict[str, object]:
    """Renames a classifier's two values: the one that is no label is the image, whatever its name."""
    labels = [name for name in LABELS if name in sample]
    if target != LABEL or len(sample) != 2 or not labels:
        return sample
    return {parameters[0] if name != labels[0] else target: value for name, value in sample.items()}


def array_of(name: str, value: object, *, label: bool = False) -> Array:
    """A value as an array: uint8, int32 or float32; a picture of Pillow's becomes (channels, height, width).

    A classifier's `label` is int32, whatever integer it is.
    """
    if name == COUNTER:
        raise RecordError(f"{COUNTER}: is the name of the random numbers' input; give it another")
    if isinstance(value, Photo):
        if value.mode[0] in "IF":
            raise RecordError(f"{name}: has Pillow's mode {value.mode}, more than 8 bits; give it as an array")
        pixels = np.asarray(value.convert("L") if value.mode in ("L", "1") else rgb(value))
        if isinstance(value, ImageFile):  # as it was opened: what a program has changed is its own
            pixels = turned(pixels, orientation(value))
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if isinstance(value, str | bytes | None):
        raise RecordError(f"{name}: must be a number or an array, got {_told(value)}; let transform make or drop it")
    array = numeric_array(name, value)
    return stored(name, array.astype(np.int32) if label and array.dtype == np.uint8 else array)


def _told(value: object) -> str:
    return "None" if value is None else type(value).__name__


def generator(seed: int, epoch: int, number: int) -> np.random.Generator:
    """The random numbers of a sample in an epoch."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, epoch, number]))


def seed_globals(seed: int, epoch: int, number: int) -> None:
    """Seeds the global generators that other libraries' transforms may draw from, in a process of the reader's own."""
    word = int(generator(seed, epoch, number).integers(2**32, dtype=np.uint64))
    random.seed(word)
    np.random.seed(word)  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(word)


def check_image(found: ArraysByName, name: str) -> None:
    """Raises RecordError where a classifier's first sample is no image, or row of numbers, with a label."""
    if set(found) != {IMAGE, LABEL}:
        raise RecordError(f"{name}: a sample must be (image, label), got {', '.join(found)}")
    shape = found[IMAGE].shape
    label = found[LABEL]
    if not shape:
        raise RecordError(f"{name}: an image must be (channels, height, width) or (features,), got a single value")
    if channels_last(shape):
        raise RecordError(
            f"{name}: images (channels, height, width) are meant, {shape} has its channels last: "
            "let transform give image.transpose(2, 0, 1)"
        )
    if label.shape or label.dtype.kind not in "iu":
        raise RecordError(f"{name}: a label must be an integer, got {label.shape} {label.dtype}; or give a loss")
