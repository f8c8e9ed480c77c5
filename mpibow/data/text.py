"""Text as tokens: characters, bytes, or those of a tokenizer.json; a stream of them as records, and as samples."""

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from google_crc32c import value as crc32c

from mpibow.errors import ConfigError, RecordError, install
from mpibow.system import JsonObject, parse_object

from .aside import content_of
from .dataset import Array, DType, Inputs
from .items import generator
from .recordset import RecordSet
from .sample_settings import TokenStream

FILE = "tokenizer.json"
FORMAT = 1
CHARS = "chars"
BYTES = "bytes"


@dataclass(frozen=True)
class Tokens:
    """How text becomes numbers below `size` and back: `content` is its tokenizer.json."""

    content: bytes

    @cached_property
    def _known(self) -> JsonObject:
        try:
            found = parse_object(self.content)
        except ValueError as error:
            raise RecordError(f"{FILE}: is not JSON: {error}") from error
        if "mpibow" in found and (found["mpibow"] != FORMAT or found.get("tokens") not in (CHARS, BYTES)):
            raise RecordError(f"{FILE}: has format {found['mpibow']}, this version reads {FORMAT}")
        return found

    @property
    def kind(self) -> str:
        """chars, bytes, or the model of a tokenizer.json, as BPE."""
        own = self._known.get("tokens") if "mpibow" in self._known else (self._known.get("model") or {}).get("type")
        return str(own or "unknown")

    @cached_property
    def size(self) -> int:
        """The largest number of a token, and 1."""
        own = {CHARS: len(self._numbers), BYTES: 256}.get(self.kind)
        return own or 1 + max(self._theirs.get_vocab().values(), default=-1)

    def encode(self, text: str) -> Array:
        """The tokens (n,) int32. Raises RecordError where a character has no number."""
        if self.kind == BYTES:
            return np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8).astype(np.int32)
        if self.kind != CHARS:
            found = self._theirs.encode(text, add_special_tokens=False)
            begin, end = np.array([(0, 0), *found.offsets]).T
            there = np.cumsum(np.bincount(begin, minlength=len(text) + 1) - np.bincount(end, minlength=len(text) + 1))
            lost = [text[i] for i in np.flatnonzero(there[:-1] == 0) if not text[i].isspace()]
            if lost:
                warnings.warn(f"{FILE}: leaves out {lost[0]!r}", stacklevel=2)
            return np.array(found.ids, np.int32)
        try:
            return np.array([self._numbers[character] for character in text], np.int32)
        except KeyError as error:
            raise RecordError(
                f"{FILE}: has no number for the character {error.args[0]!r}, the text's number "
                f"{text.index(error.args[0])}"
            ) from None

    def decode(self, tokens: Sequence[int] | Array) -> str:
        """The text of tokens (n,); bytes that are no UTF-8 become U+FFFD."""
        numbers = np.asarray(tokens, np.int64)
        if wrong := [n for n in numbers.tolist() if not 0 <= n < self.size]:
            raise RecordError(f"{FILE}: tokens lie in [0, {self.size}), got {wrong[0]}")
        if self.kind == BYTES:
            return bytes(numbers.tolist()).decode("utf-8", "replace")
        if self.kind != CHARS:
            return str(self._theirs.decode(numbers.tolist(), skip_special_tokens=False))
        return "".join(self._characters[number] for number in numbers)

    @property
    def checksum(self) -> str:
        return f"0x{crc32c(self.content):08x}"

    @cached_property
    def _characters(self) -> list[str]:
        return list(self._known.get("characters", ""))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self._characters)}

    @cached_property
    def _theirs(self) -> Any:
        try:
            package = import_module("tokenizers")
        except ImportError:
            raise RecordError(f"{FILE}: needs the package tokenizers: {install('text')}") from None
        try:
            found = package.Tokenizer.from_str(self.content.decode())
        except Exception as error:  # any error of the package, plain Exception among them
            raise RecordError(f"{FILE}: is not a tokenizer that the package tokenizers reads: {error}") from error
        found.no_truncation()
        found.no_padding()
        return found


def chars_of(text: str) -> Tokens:
    """Every character of `text`, numbered in their order."""
    return _own(CHARS, characters="".join(sorted(set(text))))


def bytes_of() -> Tokens:
    """The 256 bytes of UTF-8."""
    return _own(BYTES)


def _own(kind: str, **more: str) -> Tokens:
    return Tokens(json.dumps({"mpibow": FORMAT, "tokens": kind, **more}, ensure_ascii=False).encode())


def read_tokens(path: Path) -> Tokens:
    """The tokens of a tokenizer.json, or of the folder that has it. Raises RecordError naming the file."""
    file = path / FILE if path.is_dir() else path
    content = content_of(file)
    try:
        found = Tokens(content)
        if not found.size:
            raise RecordError("has no tokens")
    except RecordError as error:
        raise RecordError(f"{file}: {str(error).removeprefix(f'{FILE}: ')}") from error
    return found


NAMES = ("text", "target")
CHUNK = 1 << 16  # tokens of a record
DTYPES: dict[str, DType] = {"uint8": np.dtype("u1"), "uint16": np.dtype("<u2"), "int32": np.dtype("<i4")}


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
        "kind": "text",
        "tokens": len(tokens),
        "dtype": dtype_of(known.size),
        "vocabulary": known.size,
        "tokenizer": known.kind,
        "tokenizer_checksum": known.checksum,
    }


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of a stream as `NamedSamples`, `Drawn`: input (context,) int32, and target, each token's next one.

    Sample i to evaluate is the window i times context tokens from the start. To train on, the windows of an epoch are
    all shifted by one random number of tokens, a function of (seed, epoch), where `shifted` is set.
    """

    name: str
    stream: Array  # (n,) tokens
    text: TokenStream
    tokens: Tokens
    shifted: bool = False  # to train on
    names: tuple[str, str] = NAMES
    threads = 1

    @property
    def contents(self) -> JsonObject:
        """What says which token a number is."""
        return {"tokenizer": self.tokens.checksum}

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
            epochs = counters[:, 1]
            seed = int(counters[0, 0])
            for epoch in np.unique(epochs).tolist():
                starts = starts + (epochs == epoch) * self.shift(seed, epoch)
        self._fill(starts, arrays)

    def shift(self, seed: int, epoch: int) -> int:
        """Tokens by which the windows of an epoch are shifted."""
        return int(generator(seed, epoch, 0).integers(self.text.context))

    def _fill(self, starts: Array, arrays: tuple[Array, ...]) -> None:
        window = self.stream[starts[:, None] + np.arange(self.text.context + 1)]
        arrays[0][...] = window[:, :-1]
        arrays[1][...] = window[:, 1:]

    def called(self, names: Sequence[str]) -> "Windows":
        """The same with other names of input and target."""
        first, second = names
        return replace(self, names=(first, second))

    def divided(self, fraction: float) -> "tuple[Windows, Windows]":
        """The stream's first part and its end, of that share: windows drawn from all of it would overlap others."""
        cut = len(self.stream) - round(len(self.stream) * fraction)
        return self.of(self.stream[:cut]), replace(self, shifted=False).of(self.stream[cut:])

    def of(self, stream: Array) -> "Windows":
        """Windows of another stream. Raises ConfigError where it is too short for one."""
        found = replace(self, stream=stream)
        if found.count < 1:
            needed = self.text.context * (2 if self.shifted else 1) + (not self.shifted)
            raise ConfigError(
                f"data.text.context: {self.name} has {len(stream):,} tokens, a window of {self.text.context} needs "
                f"{needed:,}; set it lower"
            )
        return found


def open_text(records: RecordSet, text: TokenStream, *, training: bool) -> Windows:
    """All tokens of `records`, every checksum checked, in memory. Raises RecordError, ConfigError."""
    known = records.manifest.contents
    folder = records.folder
    tokens = read_tokens(folder)
    if tokens.checksum != known["tokenizer_checksum"]:
        raise RecordError(f"{folder}: tokenizer.json is not the one that the text was converted with; convert it again")
    parts = [records.encoded(n).view(DTYPES[known["dtype"]]) for n in range(records.count)]
    stream = np.concatenate(parts)[: known["tokens"]]
    if int(stream.max()) >= known["vocabulary"]:
        raise RecordError(f"{folder}: tokens lie in [0, {known['vocabulary']}), got {stream.max()}; convert it again")
    return Windows(records.name, stream[:0], text, tokens, training and text.windows == "random").of(stream)
