"""TFRecord files and tf.Examples, written by hand: independent of what they test."""

import struct
from pathlib import Path

Values = list[bytes] | list[float] | list[int]


def crc(data: bytes) -> int:
    """CRC32C bit by bit (reflected polynomial 0x82f63b78), masked as TFRecord does."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", crc(length)) + data + struct.pack("<I", crc(data))


def varint(value: int) -> bytes:
    value %= 2**64
    data = b""
    while value > 127:
        data += bytes([value % 128 + 128])
        value //= 128
    return data + bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number * 8 + 2) + varint(len(data)) + data


def feature(values: Values, packed: bool = True) -> bytes:
    if isinstance(values[0], bytes):
        return field(1, b"".join(field(1, value) for value in values))
    number, wire = (2, 5) if isinstance(values[0], float) else (3, 0)
    encoded = [struct.pack("<f", value) if number == 2 else varint(value) for value in values]
    inner = field(1, b"".join(encoded)) if packed else b"".join(bytes([8 + wire]) + value for value in encoded)
    return field(number, inner)


def example(packed: bool = True, **features: Values) -> bytes:
    """Names have _ for /."""
    entries = (
        field(1, field(1, name.replace("_", "/").encode()) + field(2, feature(values, packed)))
        for name, values in features.items()
    )
    return field(1, b"".join(entries))


def write(path: Path, *examples: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(frame, examples)))
    return path


def write_index(path: Path, *examples: bytes) -> Path:
    """As DALI's tfrecord2idx does."""
    lines, at = [], 0
    for data in examples:
        lines.append(f"{at} {len(data) + 16}\n")
        at += len(data) + 16
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))
    return path
