"""A stream of tokens as records, and as samples, which are its windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from google_crc32c import value as crc32c

from mpibow.data.dataset import Array, Inputs
from mpibow.data.items import generator
from mpibow.data.recordset import RecordSet
from mpibow.data.settings import Stream
from mpibow.data.tokens import Tokens, read_tokens
from mpibow.errors import ConfigError, RecordError

KIND = "text"
NAMES = ("text", "target")
CHUNK = 1 << 16  # tokens of a record
DTYPES: dict[str, np.dtype[Any]] = {"uint8": np.dtype("u1"), "uint16": np.dtype("<u2"), "int32": np.dtype("<i4")}


def dtype_of(vocabulary: int) -> str:
    """The smallest dtype that holds all tokens."""
    return "uint8" if vocabulary <= 1 << 8 else "uint16" if vocabulary <= 1 << 16 else "int32"


def records_of(tokens: Array, vocabulary: int) -> Iterator[tuple[Array, int]]:
    """The stream (n,) in records of bytes (1, 1, ...), the last one filled up with 0; and their label, 0."""
    dtype = DTYPES[dtype_of(vocabulary)]
    chunk = min(CHUNK, len(tokens))
    for first in range(0, len(tokens), chunk):
        part = np.zeros(chunk, dtype)
        part[: len(tokens[first : first + chunk])] = tokens[first : first + chunk]
        yield part.view(np.uint8).reshape(1, 1, -1), 0


def contents_of(tokens: Array, known: Tokens) -> dict[str, object]:
    """The contents field of the manifest."""
    return {
        "kind": KIND, "tokens": len(tokens), "dtype": dtype_of(known.size), "vocabulary": known.size,
        "tokenizer": known.kind, "tokenizer_checksum": f"0x{crc32c(known.content):08x}",
    }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of a stream as `NamedSamples`, `Drawn`: input (context,) int32, and target, each token's next one.

    Sample i to evaluate is the window i times context tokens from the start. To train on, the windows of an epoch are
    all shifted by one random number of tokens, a function of (seed, epoch), where `shifted` is set.
    """

    name: str
    stream: Array  # (n,) tokens
    text: Stream
    tokens: Tokens
    shifted: bool = False  # to train on
    names: tuple[str, str] = NAMES

    @property
    def threads(self) -> int:
        return 1

    @property
    def inputs(self) -> Inputs:
        return {name: ((self.text.context,), np.dtype(np.int32)) for name in self.names}

    @property
    def count(self) -> int:
        """Whole windows, wherever they begin."""
        return (len(self.stream) - (self.text.context if self.shifted else 1)) // self.text.context

    def read(self, samples: Array, *arrays: Array) -> None:
        self._fill(samples * self.text.context, arrays)

    def draw(self, samples: Array, counters: Array, *arrays: Array) -> None:
        starts = samples * self.text.context
        if self.shifted:
            epochs, seed = counters[:, 1], int(counters[0, 0])
            for epoch in np.unique(epochs).tolist():
                starts = starts + (epochs == epoch) * self.shift(seed, epoch)
        self._fill(starts, arrays)

    def shift(self, seed: int, epoch: int) -> int:
        """Tokens by which the windows of an epoch are shifted."""
        return int(generator(seed, epoch, 0).integers(self.text.context))

    def _fill(self, starts: Array, arrays: tuple[Array, ...]) -> None:
        window = self.stream[starts[:, None] + np.arange(self.text.context + 1)]
        arrays[0][...], arrays[1][...] = window[:, :-1], window[:, 1:]

    def called(self, names: Sequence[str]) -> Windows:
        """The same with other names of input and target."""
        first, second = names
        return replace(self, names=(first, second))

    def divided(self, fraction: float) -> tuple[Windows, Windows]:
        """The stream's first part and its end, of that share: windows drawn from all of it would overlap others."""
        cut = len(self.stream) - round(len(self.stream) * fraction)
        return self.of(self.stream[:cut]), replace(self, shifted=False).of(self.stream[cut:])

    def of(self, stream: Array) -> Windows:
        """Windows of another stream. Raises ConfigError where it is too short for one."""
        found = replace(self, stream=stream)
        if found.count < 1:
            needed = self.text.context * (2 if self.shifted else 1) + (not self.shifted)
            raise ConfigError(
                f"data.text.context: {self.name} has {len(stream):,} tokens, a window of {self.text.context} needs "
                f"{needed:,}; set it lower"
            )
        return found


def open_text(records: RecordSet, text: Stream, *, training: bool) -> Windows:
    """All tokens of `records`, every checksum checked, in memory. Raises RecordError, ConfigError."""
    known, folder = records.manifest.contents, records.folder
    tokens = read_tokens(folder)
    if f"0x{crc32c(tokens.content):08x}" != known["tokenizer_checksum"]:
        raise RecordError(f"{folder}: tokenizer.json is not the one that the text was converted with; convert it again")
    parts = [records.encoded(n).view(DTYPES[known["dtype"]]) for n in range(records.count)]
    stream = np.concatenate(parts)[: known["tokens"]]
    if int(stream.max()) >= known["vocabulary"]:
        raise RecordError(f"{folder}: tokens lie in [0, {known['vocabulary']}), got {stream.max()}; convert it again")
    empty = Windows(records.name, stream[:0], text, tokens, training and text.windows == "random")
    return empty.of(stream)
