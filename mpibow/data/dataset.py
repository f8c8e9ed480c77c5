"""The interface of every source of samples, and the source in memory."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from mpibow.errors import RecordError

Array = npt.NDArray[Any]
ArraysByName = Mapping[str, Array]
Shape = tuple[int, ...]
DType = np.dtype[Any]
Moments = tuple[tuple[float, ...], tuple[float, ...]]  # mean and std per channel
Inputs = Mapping[str, tuple[Shape, DType]]  # name: shape and dtype of one sample's
NUMBERS = "integers, floats or bool"
NUMBERED = "integers (np.unique(labels, return_inverse=True)[1] makes them)"
COUNTER = "counter"  # the one input that the pipeline fills itself
SAMPLE_WEIGHT = "sample_weight"  # the input of training data that are weighed (mpibow.data.sample_weights)


class Dataset(Protocol):
    """Samples by number. Images of one data set share one shape (channels, height, width) and one dtype.

    `mean` and `std` are per channel, in the unit of the stored values; a model's input is (image - mean) / std.
    `classes` is the number of classes; labels lie in [0, classes).
    """

    name: str
    count: int
    classes: int

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def mean(self) -> tuple[float, ...]: ...
    @property
    def std(self) -> tuple[float, ...]: ...

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        """Copies samples (n,) int64 into images (n, *shape) of `dtype` and labels (n,) int32.

        Raises RecordError naming file and record number where a sample is damaged.
        """


@runtime_checkable
class NamedSamples(Protocol):
    """Samples that are no images with labels: any arrays, by the names of the graph's inputs."""

    @property
    def name(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def inputs(self) -> Inputs: ...

    def read(self, samples: Array, *arrays: Array) -> None:
        """Copies samples (n,) int64 into arrays (n, ...), one for each of `inputs` and in its order."""


@runtime_checkable
class Drawn(Protocol):
    """Samples that are new in every epoch: `Dataset` or `NamedSamples` whose `read` is for evaluation."""

    @property
    def threads(self) -> int:
        """The most threads that it pays to draw with at once; 0: as many as decode images."""

    def draw(self, samples: Array, counters: Array, *arrays: Array) -> None:
        """Copies samples (n,) to train on into arrays (n, ...), in the order of `inputs_of`.

        `counters` (n, 4) are the slot's: they contain the epoch, and random numbers depend on them.
        """


Samples = Dataset | NamedSamples


class Frame(Protocol):
    """A data frame of pandas or polars."""

    @property
    def columns(self) -> Any: ...
    def __getitem__(self, name: Any, /) -> Any: ...


def is_frame(value: object) -> TypeGuard[Frame]:
    return hasattr(value, "columns") and hasattr(value, "__getitem__")


def inputs_of(data: Samples) -> Inputs:
    """The inputs of a graph that `data` fills."""
    if hasattr(data, "inputs"):  # `isinstance(data, NamedSamples)` takes 0.1 ms, and this is called for every batch
        return cast(NamedSamples, data).inputs
    weight = {SAMPLE_WEIGHT: ((), np.dtype(np.float32))} if hasattr(data, SAMPLE_WEIGHT) else {}
    return {"image": (data.shape, data.dtype), "label": ((), np.dtype(np.int32)), **weight}


def row_bytes(inputs: Inputs) -> dict[str, int]:
    """Bytes of one sample, by name."""
    return {name: math.prod(shape) * dtype.itemsize for name, (shape, dtype) in inputs.items()}


def read_into(data: Samples, samples: Array, arrays: ArraysByName) -> None:
    """Reads samples (n,) into the arrays (n, ...), by name."""
    data.read(samples, *(arrays[name] for name in inputs_of(data)))


def lots(data: Samples, rows: int, samples: Array | None = None) -> Iterator[tuple[Array, dict[str, Array]]]:
    """All samples, or those given (n,), at most `rows` at once: their numbers, and their arrays by name.

    The next lot is read into the same arrays.
    """
    numbers: Array = np.arange(data.count) if samples is None else samples
    shapes = inputs_of(data)
    arrays = {name: np.zeros((min(rows, len(numbers)), *shape), dtype) for name, (shape, dtype) in shapes.items()}
    for first in range(0, len(numbers), rows):
        lot = numbers[first : first + rows]
        found = {name: array[: len(lot)] for name, array in arrays.items()}
        read_into(data, lot, found)
        yield lot, found


class Measured:
    """The `mean` and `std` of a `Dataset`, each (channels,), which `moments` returns once they are asked for."""

    moments: Callable[[], Moments]

    @cached_property
    def _moments(self) -> Moments:
        return self.moments()

    @property
    def mean(self) -> tuple[float, ...]:
        return self._moments[0]

    @property
    def std(self) -> tuple[float, ...]:
        return self._moments[1]


class Derived(Measured):
    """A `Dataset` of another's samples, which it reads in its own way."""

    def __init__(self, data: Dataset):
        self.data = data
        self.name = data.name
        self.count = data.count
        self.classes = data.classes
        self.shape = data.shape
        self.dtype = data.dtype

    def moments(self) -> Moments:
        return self.data.mean, self.data.std


def channels_last(shape: Shape) -> bool:
    """Whether images of this shape look like (height, width, channels): grey, colour or colour and alpha come last.

    Feature maps, as (512, 4, 4) or (512, 1, 1), do not: an image is larger than its number of channels.
    """
    return len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] not in (1, 3, 4) and min(shape[:2]) > shape[2]


class ArrayData:
    """A data set of NumPy arrays in memory: images (n, c, h, w) or (n, features), labels (n,) integers.

    Labels lie in [0, classes) or equal `ignore`.
    """

    def __init__(
        self,
        images: object,
        labels: object,
        *,
        classes: int | None = None,
        ignore: int | None = None,
        name: str = "arrays",
    ):
        images = numeric_array(f"{name}: images", images)
        labels = numeric_array(f"{name}: labels", labels, NUMBERED)
        if images.ndim < 2 or len(images) == 0 or len(images) != len(labels) or labels.ndim != 1:
            raise RecordError(
                f"{name}: images {images.shape} and labels {labels.shape} must be (n, ...) and (n,) with n >= 1"
            )
        if labels.dtype.kind == "f":
            raise RecordError(
                f"{name}: labels must be integers, got {labels.dtype}; give labels.astype(int), or for numbers "
                "loss='mse_loss'"
            )
        if channels_last(images.shape[1:]):
            raise RecordError(
                f"{name}: images (n, channels, height, width) are meant, {images.shape} has its channels last: give "
                f"images.transpose(0, 3, 1, 2), or images.swapaxes(2, 3) if {images.shape[1]} are the channels"
            )
        self.images = np.ascontiguousarray(images) if images.dtype == np.uint8 else float32(f"{name}: images", images)
        self.labels: Array = labels.astype(np.int32)
        self.name = name
        self.ignore = ignore
        self.count = len(images)
        self.shape: Shape = images.shape[1:]
        self.dtype = self.images.dtype
        named = labels if ignore is None or ignore >= 0 else labels[labels != ignore]
        least, most = (int(named.min()), int(named.max())) if len(named) else (0, 0)
        self.classes = most + 1 if classes is None else classes
        if least < 0 or most >= self.classes:
            remedy = f"; loss={{'ignore_index': {least}}} leaves samples out" if least < 0 else ""
            raise RecordError(f"{name}: labels must lie in [0, {self.classes}), got {least} to {most}{remedy}")
        axes = (0, *range(2, images.ndim))
        self.mean = tuple(map(float, self.images.mean(axis=axes, dtype=np.float64)))
        spread = self.images.std(axis=axes, dtype=np.float64)
        self.std = tuple(map(float, np.where(spread > 0, spread, 1.0)))

    def read(self, samples: Array, images: Array, labels: Array) -> None:
        self.images.take(samples, axis=0, out=images, mode="clip")
        self.labels.take(samples, out=labels, mode="clip")

    def strata(self) -> Array:
        """The strata for `data.split`."""
        return self.labels

    def part(self, rows: Array) -> "ArrayData":
        """A copy of samples `rows` (n,), with moments of their own."""
        return ArrayData(self.images[rows], self.labels[rows], classes=self.classes, ignore=self.ignore, name=self.name)


class NamedArrays:
    """A data set of arrays by name, each (n, ...): integers become int32, but uint8 stays, floats float32, bool uint8.

    `contents` is their conversion from a user's data, in the form of a manifest's.
    """

    def __init__(self, arrays: ArraysByName, *, name: str = "arrays", contents: Mapping[str, object] | None = None):
        self.name = name
        self.contents = dict(contents or {})
        self.arrays = {key: _column(f"{name}.{key}", array) for key, array in arrays.items()}
        shapes = ", ".join(f"{key} {array.shape}" for key, array in self.arrays.items())
        counts = {len(array) for array in self.arrays.values()}
        if len(counts) != 1 or 0 in counts:
            raise RecordError(f"{name}: arrays must be (n, ...) of one n >= 1, got {shapes or 'none'}")
        if COUNTER in arrays:
            raise RecordError(f"{name}.{COUNTER}: is the name of the random numbers' input; give it another")
        (self.count,) = counts
        self.inputs = {key: (array.shape[1:], array.dtype) for key, array in self.arrays.items()}

    def read(self, samples: Array, *arrays: Array) -> None:
        for stored, array in zip(self.arrays.values(), arrays, strict=True):
            np.take(stored, samples, axis=0, out=array, mode="clip")

    def called(self, names: Sequence[str]) -> "NamedArrays":
        """The same arrays with these names, in their order."""
        return NamedArrays(dict(zip(names, self.arrays.values(), strict=True)), name=self.name, contents=self.contents)

    def part(self, rows: Array) -> "NamedArrays":
        """A copy of samples `rows` (n,)."""
        return NamedArrays(
            {key: array[rows] for key, array in self.arrays.items()}, name=self.name, contents=self.contents
        )


def numeric_array(name: str, value: object, wanted: str = NUMBERS) -> Array:
    """Nested lists, or an array of any library, as one of integers or floats; bool is uint8.

    Raises RecordError for other values, with what is `wanted`, and for masked ones.
    """
    try:
        if hasattr(value, "detach"):  # a tensor of PyTorch's
            tensor = value.detach().cpu()
            value = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecordError(f"{name}: cannot become an array: {error}") from None
    if np.ma.is_masked(value):
        raise RecordError(f"{name}: has masked values, which would be trained on; give array.filled(...)")
    if array.dtype.kind not in "buif":
        raise RecordError(f"{name}: must be {wanted}, got {array.dtype}")
    return array.view(np.uint8) if array.dtype == bool else array


def float32(name: str, array: Array) -> Array:
    """The array in float32, contiguous. Raises RecordError where a number is too large for it."""
    try:
        with np.errstate(over="raise"):
            return np.asarray(array, np.float32, order="C")
    except FloatingPointError:
        raise RecordError(f"{name}: must fit into float32, got {np.abs(array).max():.3g}") from None


def stored(name: str, array: Array) -> Array:
    """The array as stored: uint8 as it is, other integers int32, floats float32. Raises RecordError for the rest."""
    if array.dtype == np.uint8:
        return np.asarray(array, order="C")
    if array.dtype.kind == "f":
        return float32(name, array)
    limits = np.iinfo(np.int32)
    if array.size and not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
        raise RecordError(f"{name}: must fit into int32, got {array.min()} to {array.max()}")
    return np.asarray(array, np.int32, order="C")


def _column(name: str, value: object) -> Array:
    array = numeric_array(name, value)
    if array.ndim == 0:
        raise RecordError(f"{name}: must be an array (n, ...), got a single value")
    return stored(name, array)
