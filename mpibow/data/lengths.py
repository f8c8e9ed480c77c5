"""Sequences of unequal lengths: padded to one, or each batch to the shortest of several that its longest one fits."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from mpibow.errors import ConfigError, RecordError

from .dataset import Array, ArraysByName, Inputs, NamedArrays, Samples, numeric_array
from .sample_weights import unweighed

WINDOW = 64  # batches within which samples are sorted by length


class Padded(NamedArrays):
    """Arrays by name in memory, each (n, ...); those in `sequences` are (n, lengths[-1], ...), padded at the end.

    `counts` (n,) are the samples' own lengths, `lengths` the ones that a batch may be computed at, in rising order.
    """

    def __init__(
        self, arrays: ArraysByName, name: str, sequences: Sequence[str], counts: Array, lengths: Sequence[int]
    ):
        super().__init__(arrays, name=name)
        self.sequences = tuple(sequences)
        self.counts = counts
        self.lengths = tuple(lengths)

    def inputs_at(self, length: int) -> Inputs:
        """The inputs of a batch that is computed at this length."""
        return {
            key: ((length, *shape[1:]) if key in self.sequences else shape, dtype)
            for key, (shape, dtype) in self.inputs.items()
        }

    def length_of(self, samples: Array) -> int:
        """The length at which a batch of samples (n,) is computed."""
        return self.lengths[int(np.searchsorted(self.lengths, self.counts[samples].max()))]

    def grouped(self, window: Array, batch: int) -> Array:
        """Samples (n,) of whole batches, those of like lengths in one batch.

        Batches come in the order of the first of their samples in `window`, so that long ones are not all at the end.
        """
        places = np.argsort(self.counts[window], kind="stable").reshape(-1, batch)
        return window[places[np.argsort(places.min(axis=1))]].reshape(-1)

    def part(self, rows: Array) -> "Padded":
        """A copy of samples `rows` (n,)."""
        return Padded(super().part(rows).arrays, self.name, self.sequences, self.counts[rows], self.lengths)


def padded(columns: Mapping[str, Any], padding: Mapping[str, float], lengths: Sequence[int], name: str) -> Padded:
    """Samples of columns by name; each row of those in `padding` is filled up with its number there.

    Raises RecordError where a sample's sequences differ in length, or are longer than the last of `lengths`.
    """
    if missing := [key for key in padding if key not in columns]:
        raise RecordError(f"padding: {missing[0]}: is no column of {name}, which has {', '.join(columns)}")
    rows = {key: [numeric_array(f"{name}.{key}", row) for row in columns[key]] for key in padding}
    first = next(iter(rows))
    for key, each in rows.items():
        if len(each) != len(rows[first]) or not each:
            raise RecordError(f"{name}: {first} and {key} must have one number of samples of at least 1")
        for n, (row, beside) in enumerate(zip(each, rows[first], strict=True)):
            if not (row.ndim and 1 <= len(row) <= lengths[-1]):
                got = f"got {len(row)}" if row.ndim else "got a number"
                raise RecordError(f"{name}: sample {n}: {key} must have 1 to {lengths[-1]} values (lengths), {got}")
            if len(row) != len(beside):
                raise RecordError(f"{name}: sample {n}: {first} has {len(beside)} values, {key} {len(row)}")
            if row.shape[1:] != each[0].shape[1:]:
                raise RecordError(f"{name}: sample {n}: {key} is {row.shape}, sample 0 {each[0].shape}")
    counts = np.array([len(row) for row in rows[first]])
    filled = {key: _filled(each, lengths[-1], padding[key]) for key, each in rows.items()}
    return Padded({key: filled.get(key, each) for key, each in columns.items()}, name, [*padding], counts, lengths)


def check_padding(padding: Mapping[str, float] | None, lengths: Sequence[int]) -> None:
    """Raises ConfigError where these are no arguments of `padded`."""
    if padding is not None and not (
        isinstance(padding, Mapping) and padding and all(isinstance(each, Real) for each in padding.values())
    ):
        raise ConfigError(f"padding: must be numbers by the names of sequences, got {padding!r}")
    rising = isinstance(lengths, Sequence) and list(lengths) == sorted({*lengths})
    if not rising or not all(type(each) is int and each > 0 for each in lengths):
        raise ConfigError(f"lengths: must be rising numbers of at least 1, got {lengths!r}")
    if lengths and padding is None:
        raise ConfigError("lengths: need padding, the number that fills each sequence up")


def lengths_of(data: Samples) -> Padded | None:
    """The sequences that `data` are, or that are weighed in them; None for samples of one length."""
    found = unweighed(data)
    return found if isinstance(found, Padded) and len(found.lengths) > 1 else None


def _filled(rows: Sequence[Array], length: int, number: float) -> Array:
    """Rows (any, ...) as one array (n, length, ...)."""
    dtype = np.result_type(*{row.dtype for row in rows}, np.min_scalar_type(number))
    array = np.full((len(rows), length, *rows[0].shape[1:]), number, dtype)
    for place, row in zip(array, rows, strict=True):
        place[: len(row)] = row
    return array
