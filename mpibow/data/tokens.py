"""Text as numbers: characters, bytes, or the tokens of a tokenizer.json, kept as that file beside records and runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from mpibow.data.dataset import Array
from mpibow.errors import RecordError, install
from mpibow.system.files import read_file, reason

FILE = "tokenizer.json"
FORMAT = 1
CHARS, BYTES = "chars", "bytes"


@dataclass(frozen=True)
class Tokens:
    """How text becomes numbers below `size` and back: `content` is its tokenizer.json."""

    content: bytes

    @cached_property
    def _known(self) -> dict[str, Any]:
        try:
            found = json.loads(self.content)
        except ValueError as error:
            raise RecordError(f"{FILE}: is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise RecordError(f"{FILE}: must be a mapping, got {type(found).__name__}")
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
        """How many tokens there are."""
        return {CHARS: len(self._numbers), BYTES: 256}.get(self.kind) or int(self._theirs.get_vocab_size())

    def encode(self, text: str) -> Array:
        """The tokens (n,) int32. Raises RecordError where a character has no number."""
        if self.kind == BYTES:
            return np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8).astype(np.int32)
        if self.kind != CHARS:
            return np.array(self._theirs.encode(text, add_special_tokens=False).ids, np.int32)
        try:
            return np.array([self._numbers[character] for character in text], np.int32)
        except KeyError as error:
            at = text.index(error.args[0])
            raise RecordError(
                f"{FILE}: has no number for the character {error.args[0]!r}, the text's number {at}"
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
            return package.Tokenizer.from_str(self.content.decode())
        except Exception as error:  # any error of the package, plain Exception among them
            raise RecordError(f"{FILE}: is not a tokenizer that the package tokenizers reads: {error}") from error


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
    try:
        found = Tokens(read_file(file))
        if not found.size:
            raise RecordError("has no tokens")
    except OSError as error:
        raise RecordError(f"{file}: cannot be read: {reason(error)}") from error
    except RecordError as error:
        raise RecordError(f"{file}: {str(error).removeprefix(f'{FILE}: ')}") from error
    return found
