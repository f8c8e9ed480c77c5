"""Labels of a data set that is being converted: numbered from 0, and some of each set aside to test."""

import hashlib
from collections.abc import Iterable

import numpy as np

from mpibow.data import Array, ArraysByName
from mpibow.errors import RecordError


def numbered(labels: ArraysByName, *, classes: int | None = None) -> int:
    """The number of classes, where labels already count from 0: every class has a record, or `classes` is their number.

    `labels` maps an array's name in messages to its integers (n,). Raises RecordError where they do not.
    """
    for name, values in labels.items():
        wrong = values < 0 if classes is None else (values < 0) | (values >= classes)
        if wrong.any():
            record = int(wrong.argmax())
            rule = "0 or more" if classes is None else f"in [0, {classes})"
            raise RecordError(f"{name}: record {record}: label is {values[record]}, it must be {rule}; pass --remap")
    there = _values(map(np.unique, labels.values()))
    if classes is None and there != list(range(len(there))):
        lacks = next(place for place, label in enumerate(there) if place != label)
        remedy = f"pass --remap to number those that occur, or --classes {there[-1] + 1} to keep them"
        raise RecordError(
            f"{' and '.join(labels)}: the highest label is {there[-1]}, but no label is {lacks}; {remedy}"
        )
    return classes or len(there)


def remapped(labels: ArraysByName) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The labels as 0, 1, ... in the order of their values, int64; and the value of each."""
    values = {name: np.unique(array, return_inverse=True) for name, array in labels.items()}
    there = _values(unique for unique, _ in values.values())
    number = {label: place for place, label in enumerate(there)}
    places = {
        name: np.array([number[int(label)] for label in unique], np.int64)[inverse]
        for name, (unique, inverse) in values.items()
    }
    return places, tuple(map(str, there))


def _values(uniques: Iterable[Array]) -> list[int]:
    """The values that occur, sorted, from those of each array."""
    return sorted(set().union(*(map(int, unique) for unique in uniques)))


def set_aside(
    names: Iterable[object], labels: Array | None, fraction: float, seed: int, source: object
) -> dict[str, Array]:
    """The places of train and test: of every class that share, to the nearest number but never all. None: one class.

    Test are the images whose names' hashes with the seed are lowest. An image's part depends on its name and the seed,
    not on the order; an added image moves one other at most. Raises RecordError, naming `source`, if none is test.
    """
    assert 0 < fraction < 1
    texts = (f"{seed}/{name}".encode("utf-8", "surrogateescape") for name in names)
    keys = np.array([int.from_bytes(hashlib.sha256(text).digest()[:8]) for text in texts], np.uint64)
    labels = np.zeros(len(keys), np.int64) if labels is None else labels
    counts = np.bincount(labels)
    test: Array = ranks(keys, labels) < np.minimum(np.floor(counts * fraction + 0.5), counts - 1)[labels]
    if not test.any():
        raise RecordError(f"{source}: --test-fraction {fraction} of {len(test):,} images is none; take more")
    return {"train": np.flatnonzero(~test), "test": np.flatnonzero(test)}


def ranks(keys: Array, labels: Array) -> Array:
    """The number (n,) of images of the same label that have a lower key."""
    order = np.lexsort((keys, labels))
    ordered = labels[order]
    rank = np.empty(len(labels), np.int64)
    rank[order] = np.arange(len(labels)) - np.searchsorted(ordered, ordered)
    return rank
