"""tf.Example, as much of protobuf as it needs: features by name, each a list of bytes, of float32 or of int64.

    Example  {Features features = 1}                     BytesList {repeated bytes value = 1}
    Features {map<string, Feature> feature = 1}          FloatList {repeated float value = 1}    packed or not
    Feature  {oneof: BytesList bytes_list = 1, FloatList float_list = 2, Int64List int64_list = 3}   Int64List likewise

A map's entry is a message {string key = 1, Feature value = 2}. Fields of other numbers are skipped.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpibow.data.dataset import Array, DType
from mpibow.errors import RecordError

Buffer = bytes | memoryview
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # protobuf's wire types; 3 and 4, groups, are out of use
KINDS = {1: "bytes", 2: "float", 3: "int64"}  # field of a Feature: the type of its list
DTYPES: dict[str, DType] = {"float": np.dtype("<f4"), "int64": np.dtype("<i8")}


@dataclass(frozen=True, eq=False)
class Feature:
    """`kind` is bytes, float or int64; `values` then are buffers, (n,) float32 or (n,) int64. Kind '' has none."""

    kind: str
    values: Sequence[Buffer] | Array

    def __str__(self) -> str:
        sizes = f" of {', '.join(f'{len(v):,}' for v in self.values[:3])} bytes" if self.kind == "bytes" else ""
        return f"{len(self.values):,} {self.kind}{sizes}" if self.kind else "empty"


class _Damage(ValueError):
    pass


def parse(data: Buffer, names: Collection[str] | None = None) -> dict[str, Feature]:
    """The features of an Example, or the ones in `names`; bytes are views of `data`.

    Raises RecordError without the file's name, which the caller adds.
    """
    try:
        return {name: _feature(value) for name, value in _entries(memoryview(data)) if names is None or name in names}
    except _Damage as error:
        raise RecordError(f"is not a tf.Example: {error}") from error


def encode(features: Mapping[str, bytes | Sequence[bytes] | Array]) -> bytes:
    """An Example of bytes, floats (an array of float32) and integers (of int64), sorted by name."""
    entries = []
    for name, value in sorted(features.items()):
        if isinstance(value, np.ndarray) and value.dtype == np.float32:
            feature = _field(2, _field(1, value.astype(DTYPES["float"]).tobytes()))
        elif isinstance(value, np.ndarray):
            feature = _field(3, _field(1, b"".join(_varint(number % 2**64) for number in value.tolist())))
        else:
            values = [value] if isinstance(value, bytes) else value
            feature = _field(1, b"".join(_field(1, one) for one in values))
        entries.append(_field(1, _field(1, name.encode()) + _field(2, feature)))
    return _field(1, b"".join(entries))


def _entries(data: memoryview) -> Iterator[tuple[str, memoryview]]:
    for number, features in _messages(data):
        for other, entry in _messages(features) if number == 1 else ():
            if other == 1:
                fields = dict(_messages(entry))  # the last of duplicates counts
                try:
                    yield str(fields.get(1, b""), "utf-8"), fields.get(2, memoryview(b""))
                except UnicodeDecodeError as error:
                    raise _Damage("a feature's name is not UTF-8") from error


def _feature(data: memoryview) -> Feature:
    kind, lists = "", list[memoryview]()
    for number, value in _messages(data):
        if number in KINDS:
            lists = [*lists, value] if KINDS[number] == kind else [value]  # the last of several kinds counts
            kind = KINDS[number]
    if kind == "bytes":
        return Feature(kind, [value for one in lists for number, value in _messages(one) if number == 1])
    arrays = [values for one in lists for values in _numbers(one, kind)]
    return Feature(kind, np.concatenate(arrays) if arrays else np.empty(0, DTYPES.get(kind)))


def _numbers(data: memoryview, kind: str) -> Iterator[Array]:
    for number, wire, value in _fields(data):
        if number != 1:
            continue
        if kind == "int64" and wire == VARINT:
            yield np.array([value], np.uint64).astype(np.int64)
        elif kind == "int64" and isinstance(value, memoryview) and wire == LENGTH:
            yield _varints(value)
        elif kind == "float" and isinstance(value, memoryview) and wire in (LENGTH, FIXED32):
            if len(value) % 4:
                raise _Damage(f"a list of floats has {len(value)} bytes")
            yield np.frombuffer(value, DTYPES["float"])
        else:
            raise _Damage(f"a list of {kind} has wire type {wire}")


def _varints(data: memoryview) -> Array:
    raw = np.frombuffer(data, np.uint8)
    last = raw < 128
    if len(raw) and not last[-1]:
        raise _Damage("ends within an integer")
    starts = np.flatnonzero(np.append(True, last[:-1])) if len(raw) else np.empty(0, np.int64)
    sizes = np.diff(np.append(starts, len(raw)))
    if (sizes > 10).any():
        raise _Damage("an integer has more than 10 bytes")
    place = np.arange(len(raw)) - np.repeat(starts, sizes)
    parts = (raw & 127).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.add.reduceat(parts, starts).astype(np.int64) if len(raw) else np.empty(0, np.int64)


def _messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Fields with a length; others are skipped, as unknown ones."""
    for number, wire, value in _fields(data):
        if wire == LENGTH and isinstance(value, memoryview):
            yield number, value


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value: an integer of 64 bits, or bytes."""
    at = 0
    while at < len(data):
        tag, at = _integer(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0 or wire not in (VARINT, FIXED64, LENGTH, FIXED32):
            raise _Damage(f"a field has number {number} and wire type {wire}")
        if wire == VARINT:
            value, at = _integer(data, at)
            yield number, wire, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(wire, 0)
        if wire == LENGTH:
            size, at = _integer(data, at)
        if size > len(data) - at:
            raise _Damage(f"a field has a size of {size} bytes, {len(data) - at} are left")
        yield number, wire, data[at : at + size]
        at += size


def _integer(data: memoryview, at: int) -> tuple[int, int]:
    """A varint, and the start of the next field."""
    value = 0
    for place in range(10):
        if at + place >= len(data):
            raise _Damage("ends within an integer")
        byte = data[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value % 2**64, at + place + 1
    raise _Damage("an integer has more than 10 bytes")


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | LENGTH]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 128:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])
