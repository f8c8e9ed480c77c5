"""TFRecord files: bytes by hand, and that no damage passes."""

import gzip
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mpibow.convert import tfrecord
from mpibow.convert.tfrecord import FilePiece, masked, pieces, records, write_tfrecord
from mpibow.errors import RecordError
from tests.convert.examples import crc, frame, write, write_index
from tests.refusals import refusal_of, refuses

DATA = [b"first", b"", b"the third one"]
WHOLE = b"".join(map(frame, DATA))
AGAIN = "get the file again"


@pytest.fixture
def file(tmp_path) -> Path:
    return write(tmp_path / "a.tfrecord", *DATA)


def read_all(path: Path, index: Path | None = None, size: int = tfrecord.PIECE) -> list[bytes]:
    found = []
    for piece in pieces(path, index, size):
        for number, (start, view) in enumerate(records(piece), piece.first):
            found.append(tfrecord.read(path, number, start, len(view)))
            assert found[-1] == view
    return found


def refusal(path: Path, index: Path | None = None) -> str:
    return refusal_of(read_all, path, index, 1)


def test_masked_checksums_by_hand():
    # the catalogue's check value 0xe3069283, rotated right by 15 bits is 0x2507c60d
    assert masked(b"123456789") == (0x2507C60D + 0xA282EAD8) % 2**32 == crc(b"123456789")


def test_reads_and_writes_the_same_bytes(file: Path):
    assert read_all(file) == DATA
    with write_tfrecord(file.with_name("b"), file) as add:
        for data in DATA:
            add(data)
    assert file.with_name("b").read_bytes() == file.read_bytes()


def test_no_records(tmp_path):
    assert read_all(write(tmp_path / "a")) == []


def test_every_truncation_is_found(file: Path):
    whole = file.read_bytes()
    ends = {0, 21, 37}  # between records: a shorter file, and none the worse
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        if size in ends:
            assert read_all(file) == DATA[: sorted(ends).index(size)]
            continue
        number = sum(end <= size for end in ends) - 1
        start = sorted(ends)[number]
        what = "its header" if size - start < 16 else f"its {len(DATA[number])} bytes"
        at = start if size - start < 16 else start + 12
        expected = f"{file}: record {number}: the file ends within {what} from byte {at} on; {AGAIN}"
        assert refusal(file) == expected


def test_every_flipped_bit_is_found(file: Path):
    whole = file.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        number = 0 if bit < 8 * 21 else 1 if bit < 8 * 37 else 2
        assert refusal(file).startswith(f"{file}: record {number}: checksum of its ")


def test_checksums_are_named(file: Path):
    whole = bytearray(file.read_bytes())
    whole[12] ^= 1
    file.write_bytes(whole)
    said, found = crc(b"first"), crc(b"girst")
    assert refusal(file) == (
        f"{file}: record 0: checksum of its data is 0x{found:08x}, the file has 0x{said:08x}; {AGAIN}"
    )
    whole[21] ^= 1  # the second's length
    whole[12] ^= 1
    file.write_bytes(whole)
    said, found = crc(bytes(8)), crc(b"\1" + bytes(7))
    assert refusal(file) == (
        f"{file}: record 1: checksum of its length is 0x{found:08x}, the file has 0x{said:08x}; {AGAIN}"
    )


def test_no_length_is_trusted(tmp_path):
    length = struct.pack("<Q", 2**64 - 1)
    path = tmp_path / "a"
    path.write_bytes(length + struct.pack("<I", crc(length)) + b"some")
    assert refusal(path) == (
        f"{path}: record 0: the file ends within its 18446744073709551615 bytes from byte 12 on; {AGAIN}"
    )


def test_a_file_that_changes_after_it_was_listed(file: Path):
    write(file, b"1234567", *DATA[1:])
    with refuses(f"{file}: record 0: is no longer where it was; did the file change?", RecordError):
        tfrecord.read(file, 0, 12, 5)
    file.unlink()
    with refuses(f"{file}: cannot be read: no such file or directory", RecordError):
        tfrecord.read(file, 0, 12, 5)
    assert refusal(file) == f"{file}: cannot be read: no such file or directory"


def test_other_files_are_named(tmp_path, file: Path):
    path = tmp_path / "b.tfrecord.gz"
    path.write_bytes(gzip.compress(file.read_bytes()))
    assert refusal(path) == (f"{path}: is compressed (GZIP); unpack it first: gzip -dc b.tfrecord.gz > b.tfrecord")
    path = path.rename(tmp_path / "c")
    assert refusal(path) == f"{path}: is compressed (GZIP); unpack it first: gzip -dc c > c.plain"
    path.write_bytes(zlib.compress(file.read_bytes()))
    assert refusal(path) == (f'{path}: is compressed (ZLIB); write it again with TFRecordOptions(compression_type="")')
    path.write_bytes(b"<html>not found, nor anywhere else</html>")
    found, said = crc(b"<html>no"), int.from_bytes(b"t fo", "little")
    assert refusal(path) == (
        f"{path}: record 0: checksum of its length is 0x{found:08x}, the file has 0x{said:08x}; is it a TFRecord file?"
    )


def test_an_index_cuts_a_file_into_pieces(file: Path):
    index = write_index(file.with_suffix(".idx"), *DATA)
    assert pieces(file, index, 1) == [FilePiece(file, 0, 0, 21), FilePiece(file, 1, 21, 37), FilePiece(file, 2, 37, 66)]
    assert pieces(file, index, 30) == [FilePiece(file, 0, 0, 37), FilePiece(file, 2, 37, 66)]
    assert pieces(file, index) == pieces(file) == [FilePiece(file, 0, 0, 66)]
    assert read_all(file, index, 1) == read_all(file, index, 30) == DATA


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 21\n21 16\n", "line 2: ends at byte 37, the file at byte 66"),
        ("0 21\n22 16\n", "line 2: has '22 16' where a record starts at byte 21"),
        ("0 21\n21 15\n", "line 2: has '21 15' where a record starts at byte 21"),
        ("0 21 5\n", "line 1: must be an offset and a size, got '0 21 5'"),
        ("0 -21\n", "line 1: must be an offset and a size, got '0 -21'"),
        ("", "line 0: ends at byte 0, the file at byte 66"),
    ],
)
def test_a_stale_index(file: Path, text, message):
    index = file.with_suffix(".idx")
    index.write_text(text)
    assert refusal(file, index) == f"{index}: {message}; make the index of a.tfrecord again, or go without"


def test_an_index_of_another_file(file: Path):
    index = write_index(file.with_suffix(".idx"), b"12", b"345", DATA[2])  # as long in all
    assert refusal(file, index) == (
        f"{file}: record 0: its 5 bytes from byte 12 on go beyond byte 18; is the index another file's?"
    )
    index.write_bytes(b"\xff")
    assert refusal(file, index) == f"{index}: is not an index: it is not text"
    index.unlink()
    assert refusal(file, index) == f"{index}: cannot be read: no such file or directory"


@settings(max_examples=60)
@given(st.binary(max_size=60), st.integers(0, 66), st.booleans())
def test_any_bytes(tmp_path_factory, rubbish, at, framed):
    path = tmp_path_factory.getbasetemp() / "rubbish"
    path.write_bytes(WHOLE[:at] + (frame(rubbish) if framed else rubbish) + WHOLE[at:])
    try:
        assert all(isinstance(data, bytes) for data in read_all(path))
    except RecordError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017


@given(
    st.text(st.characters(max_codepoint=127))
    | st.lists(st.integers(0, 70), max_size=6).map(lambda v: " ".join(map(str, v)))
)
def test_any_index(tmp_path_factory, text):
    path, index = tmp_path_factory.getbasetemp() / "file", tmp_path_factory.getbasetemp() / "index"
    path.write_bytes(WHOLE)
    index.write_text(text)
    try:
        assert read_all(path, index, 1) == DATA
    except RecordError as error:
        assert str(error).startswith((f"{index}: ", f"{path}: "))  # noqa: PT017
