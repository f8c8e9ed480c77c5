"""Sizes of encoded images: golden headers, Pillow's files, and no other error whatever the bytes."""

import io
import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.data.image_header import sides_of

FRAME = bytes.fromhex("ffc0 0011 08 0102 0304 03 012200 021101 031101")  # 258 high, 772 wide
TABLE = bytes.fromhex("ffc4 0004 c000")  # a Huffman table's marker lies among the frames'
START = b"\xff\xd8"
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII5B", 13, b"IHDR", 640, 480, 8, 2, 0, 0, 0)


@pytest.mark.parametrize("marker", [0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCB, 0xCF])
def test_a_frame_of_any_kind(marker):
    frame = FRAME[:1] + bytes([marker]) + FRAME[2:]
    assert sides_of(START + frame)[0] == (0x0102, 0x0304)


@pytest.mark.parametrize(
    "before",
    [
        b"",
        TABLE,
        TABLE * 3,
        b"\xff\xff\xff",
        b"\xff\x01",
        b"\xff\xd0",
        b"\xff\xe1\x00\x0a" + FRAME[:8],
        b"\xff\xfe\0\2",
    ],
    ids=["nothing", "table", "tables", "fill", "TEM", "RST0", "a thumbnail's frame", "an empty comment"],
)
def test_what_may_stand_before_the_frame(before):
    assert sides_of(START + before + FRAME)[0] == (0x0102, 0x0304)


def test_arrays_and_png():
    assert sides_of(PNG)[0] == (480, 640)
    assert sides_of(np.frombuffer(PNG, np.uint8))[0] == (480, 640)
    assert sides_of(PNG.replace(struct.pack(">II", 640, 480), struct.pack(">II", 8192, 8192)))[0] == (8192, 8192)
    assert sides_of(np.frombuffer(START + FRAME, np.uint8))[0] == (0x0102, 0x0304)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "neither a JPEG nor a PNG"),
        (b"GIF89a" + bytes(20), "neither a JPEG nor a PNG"),
        (START, "a JPEG without a frame"),
        (START + FRAME[:8], "a JPEG without a frame"),
        (START + b"\xff\xda" + FRAME, "a JPEG without a frame"),
        (START + b"\xff\xd9" + FRAME, "a JPEG without a frame"),
        (START + TABLE + b"\0" + FRAME, "a JPEG without a marker at byte 8"),
        (START + b"\xff\xe0\0\1" + FRAME, "a JPEG with a segment of length 1 at byte 2"),
        (START + FRAME.replace(b"\x01\x02", b"\0\0"), "an image of 0 x 772 pixels"),
        (PNG[:20], "a PNG without a header"),
        (PNG.replace(b"IHDR", b"IDAT"), "a PNG without a header"),
        (PNG.replace(struct.pack(">I", 640), bytes(4)), "an image of 480 x 0 pixels"),
        (
            PNG.replace(struct.pack(">II", 640, 480), struct.pack(">II", 8193, 8192)),
            "it has 8192 x 8193 pixels, and at most 67108864 are decoded",
        ),
    ],
)
def test_what_is_no_image(data, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        sides_of(data)


@given(st.sampled_from([b"", START, START + TABLE, PNG[:8]]), st.binary(max_size=60))
def test_bytes_give_a_size_or_a_value_error(head, rest):
    with suppress(ValueError):
        (height, width), _ = sides_of(head + rest)
        assert 0 < height * width <= 1 << 26


@given(st.integers(0, 200), st.integers(0, 255), st.integers(0, 200))
def test_a_changed_byte_and_an_early_end(at, value, end):
    data = bytearray(START + TABLE + b"\xff\xe0\x00\x10" + bytes(14) + FRAME)
    data[at % len(data)] = value
    with suppress(ValueError):
        sides_of(bytes(data[:end]))


@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from(["JPEG", "PNG"]), st.booleans())
def test_pillow_writes_what_is_read(height, width, form, grey):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install -e '.[dev]'")
    file = io.BytesIO()
    image.new("L" if grey else "RGB", (width, height)).save(file, form)
    assert sides_of(file.getvalue())[0] == (height, width)
