"""Labels of a data set that is being converted: numbered from 0, and split evenly between train and test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mpibow.errors import RecordError

Array = npt.NDArray[Any]


def numbered(labels: Mapping[str, Array], *, classes: int | None = None) -> int:
    """The number of classes, where labels already count from 0: every class has a record, or `classes` says how many.

    `labels` maps what to call an array in a message to its integers (n,). Raises RecordError where they do not.
    """
    for name, values in labels.items():
        wrong = values < 0 if classes is None else (values < 0) | (values >= classes)
        if wrong.any():
            record = int(wrong.argmax())
            rule = "0 or more" if classes is None else f"in [0, {classes})"
            raise RecordError(f"{name}: record {record}: label is {values[record]}, it must be {rule}; pass --remap")
    there = sorted(set().union(*(map(int, np.unique(values)) for values in labels.values())))
    if classes is None and there != list(range(len(there))):
        lacks = next(place for place, label in enumerate(there) if place != label)
        remedy = f"pass --remap to number those that occur, or --classes {there[-1] + 1} to keep them"
        raise RecordError(f"{' and '.join(labels)}: labels go to {there[-1]}, but none is {lacks}; {remedy}")
    return classes or len(there)


def remapped(labels: Mapping[str, Array]) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The labels as 0, 1, ... in the order of their values, int64; and what each was."""
    values = {name: np.unique(array, return_inverse=True) for name, array in labels.items()}
    there = sorted(set().union(*(map(int, unique) for unique, _ in values.values())))
    number = {label: place for place, label in enumerate(there)}
    places = {
        name: np.array([number[int(label)] for label in unique], np.int64)[inverse]
        for name, (unique, inverse) in values.items()
    }
    return places, tuple(map(str, there))


def stratified(labels: Array, fraction: float, seed: int) -> Array:
    """Which records (n,) bool to set aside: of every class its share, rounded so that all together are too.

    A class of n records gives n * `fraction` rounded down; the classes with the largest rests (of equal ones the
    lowest) one more, until the total is right. Every class keeps at least one. The same for the same seed.
    """
    assert 0 < fraction < 1
    counts = np.bincount(labels)
    shares = counts * fraction
    taken = np.floor(shares).astype(np.int64)
    rests = np.where(taken + 1 < counts, shares - taken, -1.0)  # one that would keep none gives no more
    more = round(float(shares.sum())) - int(taken.sum())
    for label in np.argsort(-rests, kind="stable")[: max(more, 0)]:
        taken[label] += rests[label] > 0
    order = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, len(labels)]))).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]  # the classes in turn, each shuffled
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    aside = np.zeros(len(labels), bool)
    aside[by_class[np.arange(len(labels)) - starts < np.repeat(taken, counts)]] = True
    return aside
