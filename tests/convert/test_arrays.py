"""NumPy's files: the rows that NumPy itself reads, in every order and byte order, and no damage unseen."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpibow.convert.arrays import keys, stored
from mpibow.errors import RecordError
from tests.refusals import refusal_of

ARRAY = np.random.default_rng(6).normal(size=(5, 3, 2))
WHOLE = "is not a complete NumPy file"


def refusal(path: Path, key: str = "") -> str:
    return refusal_of(lambda: list(stored(path, key).rows()))


@pytest.mark.parametrize("dtype", ["u1", "<f4", ">f8", "f2", "i8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_numpys(tmp_path, dtype, order):
    array = np.asarray(ARRAY * 50, order=order).astype(dtype, order="K")
    np.save(tmp_path / "a.npy", array)
    found = stored(tmp_path / "a.npy")
    assert (found.shape, found.dtype, str(found)) == (array.shape, array.dtype, str(tmp_path / "a.npy"))
    assert np.array_equal(np.stack(list(found.rows())), array)
    assert np.array_equal(found.whole(), array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_in_one_file(tmp_path, save):
    path = tmp_path / "a.npz"
    save(path, x=ARRAY, y=np.arange(5))
    assert keys(path) == ["x", "y"]
    assert np.array_equal(np.stack(list(stored(path, "x").rows())), ARRAY)
    assert np.array_equal(stored(path, "y").whole(), np.arange(5))
    assert str(stored(path, "x")) == f"{path}: x"
    assert refusal(path, "z") == f"{path}: has no array 'z', it has x, y"
    np.savez(path, x=np.asfortranarray(ARRAY), s=np.array(3), o=np.array([{}], object))
    assert refusal(path, "x") == f"{path}: x: is in Fortran's order; save it as np.ascontiguousarray(...), or as .npy"
    assert refusal(path, "s") == f"{path}: s: holds a single value; save an array of numbers"
    assert refusal(path, "o") == f"{path}: o: holds Python objects, which are never read; save an array of numbers"


def test_rows_are_read_as_they_are_asked_for(tmp_path):
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"shape": (1 << 20, 1 << 20), "fortran_order": False, "descr": "|u1"}
        )
        file.truncate(file.tell() + (1 << 40))  # a terabyte, of which the disk holds nothing
    rows = stored(path).rows()
    assert not next(rows).any()
    assert len(next(rows)) == 1 << 20


HEADER = b"\x93NUMPY\x01\x00"


def npy(header: bytes, data: bytes = b"") -> bytes:
    return HEADER + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "eof: reading magic string, expected 8 bytes got 0; get the file again"),
        (
            b"<html>not found",
            r"the magic string is not correct; expected b'\x93numpy', got b'<html>'; get the file again",
        ),
        (b"\x93NUMPY\x03\x00", "version 3.0 of the format is not read here; get the file again"),
        (
            npy(b"{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", b"ab"),
            "it has 2 bytes of values, its header has 3; get the file again",
        ),
        (
            npy(b"{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", b"abcd"),
            "it has 4 bytes of values, its header has 3; get the file again",
        ),
        (
            npy(b"{'descr': '|u1', 'fortran_order': False, 'shape': (-1, -3)}", b"abc"),
            "it has 3 bytes of values, its header has 3; get the file again",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path, data, message):
    (tmp_path / "a.npy").write_bytes(data)
    assert refusal(tmp_path / "a.npy") == f"{tmp_path}/a.npy: {WHOLE}: {message}"


def test_a_missing_file(tmp_path):
    assert refusal(tmp_path / "a.npy") == f"{tmp_path}/a.npy: cannot be read: no such file or directory"
    assert refusal(tmp_path / "a.npz", "x") == f"{tmp_path}/a.npz: cannot be read: no such file or directory"


def test_objects_are_never_read(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}, 1], object))
    message = "holds Python objects, which are never read; save an array of numbers"
    assert refusal(tmp_path / "a.npy") == f"{tmp_path}/a.npy: {message}"


def files() -> dict[str, bytes]:
    made = {}
    for name, save in (("a.npy", np.save), ("a.npz", np.savez), ("b.npz", np.savez_compressed)):
        file = io.BytesIO()
        save(file, **{"arr" if save is np.save else "x": ARRAY})
        made[name] = file.getvalue()
    return made


FILES = files()


@pytest.mark.parametrize("name", FILES)
def test_truncated_at_every_byte(tmp_path, name):
    path, key = tmp_path / name, "" if name == "a.npy" else "x"
    for size in range(len(FILES[name])):
        path.write_bytes(FILES[name][:size])
        assert refusal(path, key).startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["a.npz", "b.npz"])
def test_a_flipped_bit_of_the_values_is_seen(tmp_path, name):
    path = tmp_path / name
    with zipfile.ZipFile(io.BytesIO(FILES[name])) as archive:
        stop = archive.infolist()[0].compress_size
    data = bytearray(FILES[name])
    data[stop] ^= 1  # near the end of the only array
    path.write_bytes(data)
    assert refusal(path, "x").startswith(f"{path}: x: {WHOLE}: ")


@given(st.sampled_from(sorted(FILES)), st.binary(max_size=60), st.integers(0, 500))
def test_any_bytes(tmp_path_factory, name, rubbish, at):
    path, key = tmp_path_factory.mktemp("any") / name, "" if name == "a.npy" else "x"
    start = FILES[name]
    for data in (rubbish, start[:at] + rubbish + start[at + len(rubbish) :]):
        path.write_bytes(data)
        try:
            for _ in stored(path, key).rows():
                pass
        except RecordError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
