"""The user's own data sets as samples: images with labels, or arrays by name, read here or by worker processes."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibow.errors import RecordError

from .dataset import Array, Inputs, Measured, Moments, Shape, lots
from .items import Items, check_image, inputs_like
from .moments import RunningMoments
from .workers import Workers

LOOKED_AT = 1000  # samples whose mean and spread stand for those of all


@dataclass(frozen=True)
class Hands:
    """The reader of a run's data sets: `workers`, or this process, one thread at a time in case they are not safe."""

    workers: Workers | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reader(self, items: Items, inputs: Inputs) -> Callable[[Array, Array | None, Sequence[Array]], None]:
        """A function that copies samples (n,) of epochs (n,), None to evaluate, into arrays (n, ...)."""
        if (workers := self.workers) is not None:
            number = workers.add(items, inputs)
            return lambda samples, epochs, arrays: workers.read(number, samples, epochs, arrays)

        def here(samples: Array, epochs: Array | None, arrays: Sequence[Array]) -> None:
            with self.lock:
                items.fill(samples, epochs, inputs, arrays)

        return here

    @property
    def threads(self) -> int:
        """The most threads that it pays to let wait for samples at once."""
        return 1 if self.workers is None else self.workers.count

    def close(self) -> None:
        if self.workers is not None:
            self.workers.close()


class OfItems:
    """Samples of a user's items, new in every epoch where they are drawn to train on: `Drawn`."""

    def __init__(self, items: Items, inputs: Inputs, hands: Hands):
        self._items = items
        self._inputs = inputs
        self._hands = hands
        self.name = items.name
        self.count = items.count
        self.threads = hands.threads
        self._read = hands.reader(items, inputs)

    def read(self, samples: Array, *arrays: Array) -> None:
        """To evaluate."""
        self._fill(samples, None, arrays)

    def draw(self, samples: Array, counters: Array, *arrays: Array) -> None:
        """To train on."""
        self._fill(samples, counters[:, 1], arrays)

    def _fill(self, samples: Array, epochs: Array | None, arrays: Sequence[Array]) -> None:
        self._read(samples, epochs, arrays)


class NamedItems(OfItems):
    """Samples of arrays by name: `NamedSamples`."""

    @property
    def inputs(self) -> Inputs:
        return self._inputs

    def part(self, rows: Array) -> "NamedItems":
        return NamedItems(self._items.part(rows), self._inputs, self._hands)


class LabelledItems(OfItems, Measured):
    """Images, or rows of numbers, with labels in [0, classes) or equal to `ignore`: a `Dataset`.

    Mean and std are those of LOOKED_AT samples, evenly spaced, as they are evaluated.
    """

    def __init__(self, items: Items, inputs: Inputs, hands: Hands, classes: int, ignore: int | None):
        super().__init__(items, inputs, hands)
        self.shape, self.dtype = inputs["image"]
        self.classes = classes
        self._ignore = ignore

    def moments(self) -> Moments:
        samples = np.unique(np.linspace(0, self.count - 1, min(self.count, LOOKED_AT)).astype(np.int64))
        running = RunningMoments(self.shape[0])
        for _, arrays in lots(self, 16, samples):
            for image in arrays["image"]:
                running.add(image)
        return running.found()

    def _fill(self, samples: Array, epochs: Array | None, arrays: Sequence[Array]) -> None:
        images, labels = arrays
        given = {"image": images, "label": labels}
        super()._fill(samples, epochs, [given[name] for name in self._inputs])
        wrong = (labels < 0) | (labels >= self.classes)
        if self._ignore is not None:
            wrong &= labels != self._ignore
        if wrong.any():
            row = int(wrong.argmax())
            raise RecordError(
                f"{self.name}: sample {self._items.number(int(samples[row]))}: label must lie in [0, {self.classes}), "
                f"the classes of the net, got {labels[row]}"
            )

    def part(self, rows: Array) -> "LabelledItems":
        return LabelledItems(self._items.part(rows), self._inputs, self._hands, self.classes, self._ignore)


def open_named(items: Items, hands: Hands, *, training: bool) -> NamedItems:
    """Opens samples that must all be like the first. Raises RecordError that names the first where it is no sample."""
    return NamedItems(items, inputs_like(items.sample(0, 0 if training else None)), hands)


def open_labelled(
    items: Items, hands: Hands, classes_of: Callable[[Shape, str], int], *, training: bool, ignore: int | None
) -> LabelledItems:
    """`classes_of` gives the number of classes for images of a shape and dtype. Raises RecordError as `open_named`."""
    found = items.sample(0, 0 if training else None)
    check_image(found, items.name)
    inputs = {**inputs_like(found), "label": ((), np.dtype(np.int32))}
    shape, dtype = inputs["image"]
    return LabelledItems(items, inputs, hands, classes_of(shape, str(dtype)), ignore)
