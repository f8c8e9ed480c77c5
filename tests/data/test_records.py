"""The record file: its bytes, and that no damage passes."""

import os
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from mpibow.data.records import RecordFile, RecordForm, write_file
from mpibow.errors import RecordError
from tests.refusals import refusal_of, refuses

RAW = RecordForm("raw", "uint8", (1, 2, 2))
JPEG = RecordForm("jpeg")
IMAGES = np.array([[[[1, 2], [3, 4]]], [[[5, 6], [7, 255]]]], np.uint8)
AGAIN = "copy the file or convert the data again"
GAP = "where the index leaves a gap or overlap"

# After the table in records.py, not from the writer; the four checksums are from a bitwise CRC32C (0x82f63b78).
GOLDEN = bytes.fromhex(
    "894d50520d0a1a0a 01000000 01000000 02000000 02000000 7261770000000000 75696e7438000000"
    "0200000000000000 4800000000000000 260fdeae 3dba5f29"
    "01020304 050607ff"
    "4000000000000000 f48c3029 07000000"
    "4400000000000000 8fbca1e8 00000000"
)


def write(path: Path, form: RecordForm, *records: tuple[np.ndarray | bytes, int]) -> Path:
    with write_file(path, form) as writer:
        for image, label in records:
            writer.add(image, label)
    return path


@pytest.fixture
def raw(tmp_path) -> Path:
    return write(tmp_path / "a.mpr", RAW, (IMAGES[0], 7), (IMAGES[1], 0))


@pytest.fixture
def jpeg(tmp_path) -> Path:
    return write(tmp_path / "b.mpr", JPEG, (b"abc", 7), (b"d", 1), (b"efghi", 2**31 - 1))


def read_all(path: Path) -> list[bytes]:
    file = RecordFile(path)
    return [file.stored(record)[0].tobytes() for record in range(file.count)]


refusal = partial(refusal_of, read_all)


def altered(path: Path, at: int, new: bytes) -> Path:
    """The file with other bytes, all of whose checksums are right again: only the rules can refuse it."""
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    end = int.from_bytes(data[48:56], "little")
    if end < len(data):
        data[56:60] = struct.pack("<I", crc32c(bytes(data[end:])))
    data[60:64] = struct.pack("<I", crc32c(bytes(data[:60])))
    path.write_bytes(data)
    return path


def test_golden_bytes(raw: Path):
    assert raw.read_bytes() == GOLDEN


def test_crc32c_is_castagnoli():
    assert crc32c(b"123456789") == 0xE3069283  # the check value in the catalogue of CRCs


def test_reads_golden_bytes(tmp_path):
    path = tmp_path / "golden.mpr"
    path.write_bytes(GOLDEN)
    file = RecordFile(path)
    assert (file.count, file.size, file.form, file.labels.tolist()) == (2, len(GOLDEN), RAW, [7, 0])
    assert np.array_equal(file.stored(0)[0], IMAGES[0])
    assert np.array_equal(file.stored(1)[0], IMAGES[1])


def test_reads_encoded_images(jpeg: Path):
    assert read_all(jpeg) == [b"abc", b"d", b"efghi"]
    assert RecordFile(jpeg).labels.tolist() == [7, 1, 2**31 - 1]
    assert RecordFile(jpeg).form == JPEG


def test_messages_of_damage(raw: Path):
    def damaged(at: int) -> str:
        data = bytearray(GOLDEN)
        data[at] ^= 1
        raw.write_bytes(data)
        return refusal(raw)

    magic = r"b'\x88MPR\r\n\x1a\n', not with b'\x89MPR\r\n\x1a\n'"
    assert damaged(0) == f"{raw}: is not a record file: it starts with {magic}; {AGAIN}"
    assert damaged(8) == f"{raw}: has version 0, this mpibow reads version 1; {AGAIN}"
    found = crc32c(GOLDEN[:59] + b"\xaf")
    assert damaged(59) == f"{raw}: the header's checksum is 0x{found:08x}, the header has 0x295fba3d; {AGAIN}"
    found = crc32c(b"\x05\x06\x07\xfe")
    assert damaged(71) == f"{raw}: record 1: checksum is 0x{found:08x}, the index has 0xe8a1bc8f; {AGAIN}"
    found = crc32c(GOLDEN[72:103] + b"\x01")
    assert damaged(103) == f"{raw}: the index's checksum is 0x{found:08x}, the header has 0xaede0f26; {AGAIN}"
    raw.write_bytes(GOLDEN[:10])
    assert refusal(raw) == f"{raw}: is 10 bytes long, a record file has at least 64; {AGAIN}"
    raw.write_bytes(GOLDEN[:-1])
    assert refusal(raw) == f"{raw}: is 103 bytes long, but its header has 2 records and an index at byte 72; {AGAIN}"


@pytest.mark.parametrize(
    ("at", "new", "message"),
    [
        (12, struct.pack("<3I", 1, 2, 3), "has 8 bytes of images, not 2 times 6"),
        (12, struct.pack("<3I", *[2**32 - 1] * 3), f"has 8 bytes of images, not 2 times {(2**32 - 1) ** 3}"),
        (12, struct.pack("<3I", 1, 1, 3), "has 8 bytes of images, not 2 times 3"),
        (12, bytes(12), "raw images have a shape (channels, height, width), got ()"),
        (12, struct.pack("<3I", 4, 1, 0), "raw images have a shape (channels, height, width), got (4, 1, 0)"),
        (24, b"jpeg", "jpeg images have no common shape, got (1, 2, 2)"),
        (24, b"bmp", "encoding must be one of raw, jpeg, png, got 'bmp'"),
        (32, b"int16", "dtype must be one of uint8, float32, got 'int16'"),
        (
            40,
            struct.pack("<Q", 2**60),
            f"is 104 bytes long, but its header has {2**60} records and an index at byte 72",
        ),
        (40, struct.pack("<QQ", 0, 104), "is 104 bytes long, but its header has 0 records and an index at byte 104"),
        (40, struct.pack("<QQ", 4, 40), "is 104 bytes long, but its header has 4 records and an index at byte 40"),
        (
            40,
            struct.pack("<QQ", 2**60, 104),
            f"is 104 bytes long, but its header has {2**60} records and an index at byte 104",
        ),
        (72, struct.pack("<Q", 65), f"record 0: starts at byte 65, {GAP}"),
        (88, struct.pack("<Q", 67), f"record 1: starts at byte 67, {GAP}"),
        (88, struct.pack("<Q", 2**64 - 1), f"record 1: starts at byte {2**64 - 1}, {GAP}"),
    ],
)
def test_checksums_alone_are_not_trusted(raw: Path, at, new, message):
    assert refusal(altered(raw, at, new)) == f"{raw}: {message}; {AGAIN}"


@pytest.mark.parametrize(
    ("row", "start", "named"), [(0, 65, 0), (0, 63, 0), (1, 64, 0), (1, 68, 1), (2, 73, 2), (2, 2**63, 2)]
)
def test_an_encoded_index_must_tile(jpeg: Path, row, start, named):
    said = RecordFile(jpeg)._index["start"][named] if named != row else start
    altered(jpeg, 73 + 16 * row, struct.pack("<Q", start))
    message = f"{jpeg}: record {named}: starts at byte {said}, {GAP}; {AGAIN}"
    assert refusal(jpeg) == message


def test_a_missing_file(tmp_path):
    assert refusal(tmp_path / "no.mpr") == f"{tmp_path}/no.mpr: cannot be read: no such file or directory"
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read: is a directory"


@pytest.mark.parametrize(
    ("form", "image", "label", "message"),
    [
        (RAW, IMAGES[0, 0], 0, "is raw uint8 (2, 2), the file holds raw uint8 (1, 2, 2)"),
        (RAW, IMAGES[0].astype(np.float32), 0, "is raw float32 (1, 2, 2), the file holds raw uint8 (1, 2, 2)"),
        (RAW, b"abcd", 0, "is raw, the file holds raw uint8 (1, 2, 2)"),
        (JPEG, IMAGES[0], 0, "is raw uint8 (1, 2, 2), the file holds jpeg"),
        (JPEG, b"", 0, "is empty, an image has at least one byte"),
        (JPEG, b"a", -1, "a label lies in [0, 2147483648), got -1"),
        (JPEG, b"a", 2**31, "a label lies in [0, 2147483648), got 2147483648"),
        (
            RecordForm("raw", "float32", (1, 1, 1)),
            np.full((1, 1, 1), np.nan, "f4"),
            0,
            "has values that are not finite",
        ),
    ],
)
def test_refuses_records_that_do_not_fit(tmp_path, form: RecordForm, image: np.ndarray | bytes, label, message):
    path = tmp_path / "a.mpr"
    with refuses(f"{path}: record 0: {message}", RecordError):
        write(path, form, (image, label))
    assert list(tmp_path.iterdir()) == []


def test_refuses_an_empty_file_and_a_wrong_form(tmp_path):
    with pytest.raises(RecordError, match=r"a\.mpr: has no records, a file holds at least one"):
        write(tmp_path / "a.mpr", JPEG)
    with pytest.raises(RecordError, match=r"a\.mpr: dtype must be one of uint8, float32, got 'int64'"):
        write(tmp_path / "a.mpr", RecordForm("raw", "int64", (1, 1, 1)))
    assert list(tmp_path.iterdir()) == []


def test_labels_are_32_bits_whatever_the_classes(tmp_path):
    with (
        pytest.raises(RecordError, match=r"record 0: a label lies in \[0, 2147483648\), got 2147483648$"),
        write_file(tmp_path / "a.mpr", JPEG, classes=2**40) as writer,
    ):
        writer.add(b"a", 2**31)


def test_file_then_name_then_folder_reach_the_disk(tmp_path, monkeypatch):
    path, steps = tmp_path / "a.mpr", []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        steps.append("folder" if os.path.samestat(os.fstat(handle), tmp_path.stat()) else os.fstat(handle).st_size)
        fsync(handle)

    def renamed(old: Path, new: Path) -> None:
        steps.append((old.parent, new))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write(path, RAW, (IMAGES[0], 7), (IMAGES[1], 0))
    assert steps == [len(GOLDEN), (tmp_path, path), "folder"]


def test_writing_that_fails_leaves_the_old_file(raw: Path):
    with pytest.raises(ZeroDivisionError), write_file(raw, RAW) as writer:  # noqa: PT012
        writer.add(IMAGES[0], 1)
        raise ZeroDivisionError
    assert raw.read_bytes() == GOLDEN
    assert list(raw.parent.iterdir()) == [raw]


def test_a_folder_that_is_not_there(tmp_path):
    path = tmp_path / "no" / "a.mpr"
    with refuses(f"{path}: cannot be written: no such file or directory", RecordError):
        write(path, JPEG, (b"a", 0))


@settings(max_examples=40)  # the disk takes its time
@given(st.data())
def test_what_is_written_is_read(tmp_path_factory, data: st.DataObject):
    path = tmp_path_factory.mktemp("records") / "a.mpr"
    labels = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5))
    encoding = data.draw(st.sampled_from(["raw", "jpeg", "png"]))
    images: list[np.ndarray | bytes]
    if encoding == "raw":
        shape = data.draw(hnp.array_shapes(min_dims=3, max_dims=3, max_side=4))
        dtype = data.draw(st.sampled_from(["u1", "<f4", ">f4"]))
        elements = st.integers(0, 255) if dtype == "u1" else st.floats(width=32, allow_nan=False, allow_infinity=False)
        images = [data.draw(hnp.arrays(dtype, shape, elements=elements)) for _ in labels]
        form = RecordForm.of(images[0], encoding)
    else:
        images = [data.draw(st.binary(min_size=1, max_size=20)) for _ in labels]
        form = RecordForm(encoding)
    write(path, form, *zip(images, labels, strict=True))
    file = RecordFile(path)
    assert (file.form, file.labels.tolist()) == (form, labels)
    for record, image in enumerate(images):
        found = file.stored(record)[0]
        assert found.tobytes() == image if isinstance(image, bytes) else np.array_equal(found, image)
