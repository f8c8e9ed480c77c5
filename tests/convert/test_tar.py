"""Tar files: as Python's tarfile writes them in its three formats, and that no damage passes in silence."""

import io
import tarfile
from functools import partial

import pytest
from hypothesis import given, settings, strategies as st

from mpibow.convert.source_files import mapped
from mpibow.convert.tar import Member, members
from mpibow.errors import RecordError
from tests.refusals import refusal_of, refuses

LONG = "a folder/" * 20 + "with a name.JPEG"
FILES = {"a.JPEG": b"abc", LONG: b"x" * 513, "empty": b"", "a/b.JPEG": b"y" * 512}
AGAIN = "get the file again"


def tar(files: dict[str, bytes] = FILES, form: int = tarfile.GNU_FORMAT, **fields: object) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in fields.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def contents(data: bytes, start: int = 0, stop: int | None = None) -> dict[str, bytes]:
    return {name: data[at : at + size] for name, at, size in members(io.BytesIO(data), "x.tar", start, stop)}


refusal = partial(refusal_of, contents)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_reads_what_tarfile_writes(form):
    files = FILES if form != tarfile.USTAR_FORMAT else {name[-150:].lstrip("/"): data for name, data in FILES.items()}
    assert contents(tar(files, form)) == files


def test_extended_headers():
    assert contents(tar(form=tarfile.PAX_FORMAT, pax_headers={"comment": "é" * 200, "mtime": "1.5"})) == FILES
    data = tar({"ä" * 60: b"1"}, tarfile.PAX_FORMAT)
    assert contents(data) == {"ä" * 60: b"1"}


def test_a_tar_in_a_tar():
    inner = tar({"1.JPEG": b"one", "2.JPEG": b"two"})
    outer = tar({"n1.tar": inner, "n2.tar": tar({})})
    first, second = members(io.BytesIO(outer), "x")
    assert (first.name, second.name) == ("n1.tar", "n2.tar")
    assert contents(outer, first.start, first.start + first.size) == {"1.JPEG": b"one", "2.JPEG": b"two"}
    assert contents(outer, second.start, second.start + second.size) == {}


def test_places_are_those_of_tarfile(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar())
    with tarfile.open(path) as archive:
        there = [Member(info.name, info.offset_data, info.size) for info in archive if info.isreg()]
    assert list(members(mapped(path), "a")) == there


def test_a_size_in_binary():
    """GNU's form for more than 8 GiB, here of 3 bytes."""
    data = bytearray(tar({"a": b"abc"})[512:])  # without the folder
    data[124:136] = b"\x80" + bytes(10) + b"\3"
    data[148:156] = b" " * 8
    data[148:156] = f"{sum(data[:512]):06o}\0 ".encode()
    assert contents(bytes(data)) == {"a": b"abc"}
    data[124] = 0xFF  # below 0
    data[148:156] = b" " * 8
    data[148:156] = f"{sum(data[:512]):06o}\0 ".encode()
    assert refusal(bytes(data)).startswith("x.tar: a: has a size of -")


def test_truncation_at_every_byte_is_found():
    whole = tar({"a": b"abc", "b": b"d" * 600})
    end = 512 * (1 + 2 + 1 + 2)  # the folder, a, b; then the empty blocks
    for size in range(end + 512):
        assert refusal(whole[:size]).startswith("x.tar: ")
    assert refusal(whole[:512]) == f"x.tar: ends at byte 512 without the empty block that closes a tar; {AGAIN}"
    assert refusal(whole[:2060]) == f"x.tar: b: has a size of 600 bytes, 12 are left; {AGAIN}"
    assert contents(whole[: end + 512]) == {"a": b"abc", "b": b"d" * 600}


def test_every_flipped_bit_of_a_header_is_found_or_means_the_same():
    whole = tar({"a": b"abc"})
    for bit in range(8 * 512, 8 * 1024):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        try:
            assert contents(bytes(data)) == {"a": b"abc"}
            assert 148 <= bit // 8 % 512 < 156  # the padding of the checksum itself
        except RecordError as error:
            assert str(error) == f"x.tar: header at byte 512 is damaged; {AGAIN}"  # noqa: PT017


def test_other_files_are_named(tmp_path):
    assert refusal(b"\x1f\x8b" + bytes(1000)) == "x.tar: is not a tar archive; if it is compressed, unpack it first"
    (tmp_path / "a.tar").write_bytes(b"")
    with refuses(f"{tmp_path}/a.tar: cannot be read: cannot mmap an empty file", RecordError):
        mapped(tmp_path / "a.tar")
    with refuses(f"{tmp_path}/b.tar: cannot be read: no such file or directory", RecordError):
        mapped(tmp_path / "b.tar")


def test_links_are_refused():
    data = tar({"b": b""}, type=tarfile.SYMTYPE, linkname="a")
    assert refusal(data) == "x.tar: b: is a link or device (type '2'), not a file; pack files only"


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"9 path=a\nrest", "an extended header is damaged"),
        (b"99 path=a\n", "an extended header is damaged"),
        (b"8 path=a\n", "an extended header is damaged"),
        (b"x", "an extended header is damaged"),
        (b"0 =\n", "an extended header is damaged"),
        (b"4 =\n", "an extended header is damaged"),
        (b"11 size=-1\n", "an extended header has the size '-1'"),
        (b"11 size=\xc2\xb2\n", "an extended header has the size '²'"),
        (b"12 size=1_0\n", "an extended header has the size '1_0'"),
    ],
)
def test_damaged_extended_headers(kind, lines, message):
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, len(lines)
    data = info.tobuf() + lines.ljust(512, b"\0") + tar({"a": b"abc"})[512:]
    assert refusal(data) == f"x.tar: {message}; {AGAIN}"


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_extended_headers_that_are_too_large(kind):
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 2 << 20
    assert refusal(info.tobuf() + bytes(3 << 20)) == f"x.tar: an extended header has a size of 2097152 bytes; {AGAIN}"


def test_a_changed_length_in_an_extended_header():
    data = tar({"a": b"abc", "b" * 130: b"d"}, tarfile.PAX_FORMAT)
    assert data.count(b"140 path=b") == 1
    assert refusal(data.replace(b"140 path=b", b"940 path=b")) == f"x.tar: an extended header is damaged; {AGAIN}"


@settings(max_examples=300)
@given(
    st.binary(max_size=40),
    st.integers(0, 4000),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.booleans(),
)
def test_any_bytes(rubbish, at, form, mend):
    """With `mend` the header's checksum is right again, so that its fields are looked at."""
    data = bytearray(tar(form=form))
    data[at : at + len(rubbish)] = rubbish
    if mend:
        block = at // 512 * 512
        data[block + 148 : block + 156] = b" " * 8
        data[block + 148 : block + 156] = f"{sum(data[block : block + 512]):06o}\0 ".encode()
    try:
        assert all(isinstance(name, str) for name in contents(bytes(data)))
    except RecordError as error:
        assert str(error).startswith("x.tar: ")  # noqa: PT017
