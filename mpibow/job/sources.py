"""Samples from the data that a program gives to `fit`: arrays, its own data sets, folders of records."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpibow.config import show
from mpibow.data import (
    Array,
    ArrayData,
    ArraysByName,
    Image,
    NamedArrays,
    RecordSet,
    Samples,
    Shape,
    TokenStream,
    is_frame,
)
from mpibow.data.indexed import Hands, open_labelled, open_named
from mpibow.data.items import IMAGE, LABEL, LABELS, Indexed, Items, Transform
from mpibow.data.lengths import padded
from mpibow.data.workers import GUARD, Workers, starting
from mpibow.errors import ConfigError
from mpibow.models import Net
from mpibow.models.augmentation import Augmentation
from mpibow.models.classifier import classifier
from mpibow.models.objective import TARGET
from mpibow.system import StrPath

from .record_kinds import classified, for_net, named, open_data

Arrays = Array | ArraysByName
Source = Samples | Indexed | tuple[Arrays, Arrays] | ArraysByName | StrPath
Transforms = Transform | Mapping[str, Transform | None]
PARTS = ("train", "test")  # of transforms; that of test is of validation data, too


@dataclass(frozen=True)
class Sources:
    """Makes samples from the data that `fit` is given.

    `parameters` are the names of the net's arguments; `outputs` is whether it gives outputs to compare with targets,
    and not logits or losses. `classes_of` gives a classifier's number of classes for images of a shape and dtype.
    `columns` are the names that the net reads where data have others, too. `padding` has a number for each sequence by
    name, which fills it up to the last of `lengths`.
    """

    parameters: tuple[str, ...]
    outputs: bool
    classes_of: Callable[[Shape, str], int]
    ignore: int | None = None
    seed: int = 0
    transform: Transforms | None = None
    hands: Hands = field(default_factory=Hands)
    image: Image | None = None
    text: TokenStream | None = None
    columns: tuple[str, ...] = ()
    padding: Mapping[str, float] | None = None
    lengths: tuple[int, ...] = ()

    def __call__(self, source: Source, name: str, classes: int | None = None) -> Samples:
        """The samples of `train`, `validation` or `test`; `classes` are those of training. Raises ConfigError."""
        if self.columns and isinstance(source, Mapping):
            source = chosen(source, self.columns)
        elif self.columns and isinstance(source, Indexed) and not isinstance(source, tuple | str):
            source = Columns(source, self.columns)
        if self.padding is not None:
            return self._padded(source, name)
        if isinstance(source, tuple) and len(source) == 2:
            if self.transform is not None:
                return self._indexed(ArrayItems(source), name)
            return self._arrays(*source, name, classes)
        if isinstance(source, Mapping):
            return NamedArrays(source, name=name) if self.transform is None else self._indexed(ArrayItems(source), name)
        if isinstance(source, RecordSet | str | os.PathLike):
            if self.transform is not None:
                raise ConfigError(f"transform: is for arrays and data sets with items, {name} is a folder of records")
            records = source if isinstance(source, RecordSet) else open_data(os.fspath(source))
            return self._records(records, training=name == PARTS[0])
        several = isinstance(source, tuple) and source and all(isinstance(each, np.ndarray) for each in source)
        if several or isinstance(source, np.ndarray):
            raise ConfigError(_refusal(source, name))
        if isinstance(source, Indexed):
            return self._indexed(source, name)
        if not hasattr(source, "read"):
            raise ConfigError(_refusal(source, name))
        return source

    def _padded(self, source: Source, name: str) -> Samples:
        """Arrays by name, or the values of a data set's items by name, all in memory."""
        if self.transform is not None:
            raise ConfigError("padding: takes no transform; change the data before")
        if isinstance(source, tuple) and len(source) == 2 and self.outputs:
            source = self._by_name(*source)
        if not isinstance(source, Mapping):
            items = [source[n] for n in range(len(source))] if isinstance(source, Indexed) else []
            named = [item for item in items if isinstance(item, Mapping)]
            if not named or len(named) < len(items):
                raise ConfigError(f"padding: needs arrays or values by name, {name} is {type(source).__name__}")
            source = {key: [item[key] for item in named] for key in named[0]}
        return padded(source, self.padding or {}, self.lengths, name)

    def _arrays(self, first: Arrays, second: Arrays, name: str, classes: int | None) -> Samples:
        if not self.outputs and len(self.parameters) > 1:
            names = ", ".join(f"'{each}': ..." for each in self.parameters)
            raise ConfigError(f"{name}: the net takes {len(self.parameters)} arrays; give {{{names}}}, or a loss")
        if not self.outputs:
            return ArrayData(first, second, classes=classes, ignore=self.ignore, name=name)
        return NamedArrays(self._by_name(first, second), name=name)

    def _by_name(self, inputs: Arrays, targets: Arrays) -> dict[str, Array]:
        given = dict(inputs) if isinstance(inputs, Mapping) else {self.parameters[0]: inputs}
        return given | (dict(targets) if isinstance(targets, Mapping) else {TARGET: targets})

    def _records(self, records: RecordSet, *, training: bool) -> Samples:
        """Images with classes for a classifier, arrays by name for a net of outputs, or of losses."""
        if not self.outputs and len(self.parameters) == 1 and classified(records):
            return records
        found = named(records, image=self.image, text=self.text, training=training)
        return for_net(found, self.parameters) if self.outputs else found

    def _indexed(self, source: Indexed, name: str) -> Samples:
        training = name == PARTS[0]
        change = transforms_of(self.transform)
        before = change["train"] if training else None
        items = Items(name, source, self.parameters, TARGET, self.seed, before, change["test"])
        if items.count < 1:
            raise ConfigError(f"{name}: has no samples, a data set has at least one")
        if self.outputs or not self._labelled(items.item(0, 0 if training else None)):
            return open_named(items, self.hands, training=training)
        items = replace(items, parameters=(IMAGE,), target=LABEL)
        return open_labelled(items, self.hands, self.classes_of, training=training, ignore=self.ignore)

    def _labelled(self, first: object) -> bool:
        """Whether samples are a classifier's: a pair, or two values by name, of which the net takes one."""
        if not isinstance(first, Mapping):
            return True
        return len(first) == 2 and len(self.parameters) == 1 and bool(set(LABELS) & (set(first) - {*self.parameters}))


@dataclass(frozen=True)
class Columns:
    """The values of a data set's items by these names."""

    source: Indexed
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, number: int) -> Any:
        item = self.source[number]
        return chosen(item, self.names) if isinstance(item, Mapping) else item


def chosen(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The values of these names; `label` is the name of `labels` in many data sets."""
    other = {"labels": "label"} if "labels" not in values else {}
    return {name: values[other.get(name, name)] for name in names if other.get(name, name) in values}


@dataclass(frozen=True)
class ArrayItems:
    """Arrays (n, ...) as items: a pair of arrays, or of arrays by name; or arrays by name alone."""

    arrays: Any

    def __len__(self) -> int:
        return _length(self.arrays)

    def __getitem__(self, number: int) -> object:
        return _row(self.arrays, number)


def _length(arrays: Any) -> int:
    """The rows of the longest array: reading the last of them fails where another has fewer."""
    parts = tuple(arrays.values()) if isinstance(arrays, Mapping) else arrays
    return max(map(_length, parts)) if isinstance(parts, tuple) else len(parts)


def _row(arrays: Any, number: int) -> object:
    if isinstance(arrays, tuple):
        return tuple(_row(each, number) for each in arrays)
    if isinstance(arrays, Mapping):
        return {name: _row(each, number) for name, each in arrays.items()}
    return getattr(arrays, "iloc", arrays)[number]  # a Series of pandas would look for a label


def parameters_of(net: Callable[..., object]) -> tuple[str, ...]:
    """The names of the arguments that the net needs."""
    parameters = inspect.signature(net).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return tuple(needed or [p.name for p in parameters][:1])


def classes_of(net: Net, augmentation: Augmentation, shape: Shape, dtype: str) -> int:
    """How many logits a classifier gives for images of a shape and dtype. Raises ShapeError where it gives none."""
    graph = classifier(net, shape, dtype, augmentation=augmentation)(1)
    return int(graph.tensors[graph.outputs["logits"]].shape[1])


def hands_of(workers: int) -> Hands:
    """The reader of data sets, with so many processes. Raises ConfigError, also where one of them calls it."""
    if starting():
        raise ConfigError(f"fit: is called while a worker process imports the program: {GUARD}")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise ConfigError(f"workers: must be a number of processes, or 0 for none, got {show(workers)}")
    return Hands(Workers(workers) if workers else None)


def source_of(given: Source | float) -> str | float | None:
    """The folder of records that it is, a fraction, or None for a program's own data: how an evaluation finds it."""
    if isinstance(given, RecordSet):
        return str(given.folder)
    return given if isinstance(given, float) else os.fspath(given) if isinstance(given, str | os.PathLike) else None


def columns_of(source: object, parameters: Sequence[str]) -> list[str]:
    """The columns of the data frame that the net's first parameter is; [] for other data."""
    first = source[0] if isinstance(source, tuple) else source
    if isinstance(first, Mapping):
        first = first.get(parameters[0])
    return [str(name) for name in first.columns] if isinstance(source, tuple | Mapping) and is_frame(first) else []


def orders_of(source: object) -> list[list[str]]:
    """The columns of each data frame in a pair, or in arrays by name."""
    parts = source.values() if isinstance(source, Mapping) else source if isinstance(source, tuple) else ()
    orders = [[[*map(str, each.columns)]] if is_frame(each) else orders_of(each) for each in parts]
    return [order for found in orders for order in found]


def in_order(given: object, orders: Sequence[Sequence[str]], name: str) -> Any:
    """`given`, whose data frames have their columns in one of these `orders`. Raises ConfigError."""
    if isinstance(given, tuple):
        return tuple(in_order(each, orders, name) for each in given)
    if isinstance(given, Mapping):
        return {key: in_order(each, orders, name) for key, each in given.items()}
    if not orders or not is_frame(given):
        return given
    if [*map(str, given.columns)] in orders:
        return given
    places = {str(column): column for column in given.columns}
    for order in orders:
        if {*order} == {*places}:
            return given[[places[column] for column in order]]
    raise ConfigError(f"{name}: has columns {', '.join(places)}, train has {', '.join(orders[0])}")


def transforms_of(given: Transforms | None) -> dict[str, Transform | None]:
    """By name. Raises ConfigError."""
    if given is None or callable(given):
        return {"train": given, "test": None}
    for name, each in given.items():
        if name not in PARTS:
            raise ConfigError(f"transform: must be a function, or functions by {' and '.join(PARTS)}, got {show(name)}")
        if each is not None and not callable(each):
            raise ConfigError(f"transform.{name}: must be a function of (sample, rng), got {show(each)}")
    return {name: given.get(name) for name in PARTS}


def _refusal(source: object, name: str) -> str:
    if isinstance(source, tuple):
        return (
            f"{name}: must be two arrays, (inputs, targets), got {len(source)}; weights of samples are sample_weight="
        )
    if hasattr(source, "__getitem__") and not hasattr(source, "__len__"):
        return f"{name}: {type(source).__name__} has no length (__len__), which the order of samples needs"
    if hasattr(source, "dataset") and hasattr(source, "batch_size"):
        return f"{name}: is a loader of batches, and mpibow orders samples itself; give its data set, {name}.dataset"
    if hasattr(source, "__iter__") and not isinstance(source, np.ndarray):
        return f"{name}: {type(source).__name__} can only be iterated; give a data set with __len__ and __getitem__"
    kinds = "(images, labels), arrays by name, a data set with __len__ and __getitem__, or a folder of records"
    return f"{name}: must be {kinds}, got {type(source).__name__}"
